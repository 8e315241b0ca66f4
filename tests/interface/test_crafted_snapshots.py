"""Crafted snapshots: their digest fits, and their content does not. They are refused as unreadable."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.kit.each import each
from tests.kit.effort import IS_DEEP
from toolloop import Approve, Grant, LoopConfig, ToolContext, ToolLoopHandle, Yielded, sub_loop, tool
from toolloop.errors import ToolLoopError, UnreadableSnapshot
from toolloop.stores.codec import digest_snapshot
from toolloop.testing import ScriptedProvider, call, reply

GOLDEN = [json.loads(path.read_text("utf-8")) for path in sorted(Path("tests/recorded/golden").glob("format-*.json"))]
SNAPSHOTS = [golden.get("snapshot", golden) for golden in GOLDEN]
SCRIPT = [reply(calls=[call("add", {"a": 1, "b": 2})]), *[reply("end")] * 5]
LEVELS = 12  # how deep a change may be; JSON texts inside count anew
RAN: list[str] = []


@tool
def add(a: int, b: int, context: ToolContext) -> str:
    """Add two numbers."""
    RAN.append(context.idempotency_key)
    return str(a + b)


@tool(needs_approval=True)
def write(path: str, text: str, context: ToolContext) -> str:
    """Replace a text file."""
    RAN.append(context.idempotency_key)
    return f"wrote {path}: {text}"


AGENT = sub_loop(
    "research", "Look into it.", params={"model": "claude-opus-5-5", "max_tokens": 128}, tools=(add, write)
)


def times_in(value: Any, *before: Any) -> Iterator[tuple[Any, ...]]:
    """The places of the times in a snapshot."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if key in ("at", "expires_at", "now", "said_at") and isinstance(item, (int, float)):
            yield (*before, key)
        yield from times_in(item, *before, key)


def test_a_time_that_no_clock_shows_is_refused() -> None:
    """Of a grant, a decision, a call that waits and the loop itself; elsewhere it would be a bare error."""
    calls = [call("write", {"path": "a", "text": "b"}, id=f"toolu_{number}") for number in range(2)]
    asked = {"model": "claude-opus-5-5", "max_tokens": 128, "messages": [{"role": "user", "content": "x"}]}
    config = LoopConfig(decision_timeout=60.0)
    handle = ToolLoopHandle(ScriptedProvider([reply(calls=calls)]), params=asked, tools=[write], config=config)
    handle.run()
    handle.decide({"toolu_0": Approve(remember=Grant(expires_at=datetime.now(UTC) + timedelta(days=1)))})
    snapshot = handle.snapshot()
    places = list(times_in(snapshot))
    assert {place[-1] for place in places} >= {"at", "expires_at", "now"}
    for *place, last in places:
        for time in (1e300, 2**62, -1e300):
            crafted = copy.deepcopy(snapshot)
            target = crafted
            for key in place:
                target = target[key]
            target[last] = time
            fields = {key: value for key, value in crafted.items() if key not in ("format", "digest")}
            crafted["digest"] = digest_snapshot(fields)
            with pytest.raises(UnreadableSnapshot, match=f"'{last}' is not a time"):
                ToolLoopHandle.restore(crafted, ScriptedProvider([]), tools=[write])


def make_nested(levels: int, *, is_list: bool) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value] if is_list else {"a": value}
    return value


def make_odd(random: Random) -> Any:
    values: list[Any] = [
        *(None, True, False, 0, 1, -1, 2, 2**63, 10**400, -(10**400), 0.5, 1e308, float("nan"), float("-inf")),
        *("", "x", "0", "\ud800", "a/b", [], {}, [[]], {"a": 1}, [1], "[]", "{}", "null"),
        *('{"role":"user","content":"x"}', '{"role":"assistant","content":[]}', '{"content":[{"type":"tool_use"}]}'),
        *("Ready", "Requesting", "Judging", "Running", "Waiting", "Finished", "Failed", "TooDeep"),
        *("proposed", "waiting", "decided", "cleared", "running", "settled", "approve", "deny", "rerun", "answer"),
        make_nested(random.choice((100, 900, 3000)), is_list=random.random() < 1 / 2),
    ]
    return random.choice(values)


NAMES = ["x", "name", "kind", "calls", "round", "status", "path", "phase", "has_loop"]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in this one, but not of itself."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        if len(path) < LEVELS:
            yield from places(inner, (*path, key))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def change(value: Any, random: Random, source: Any, *, is_text: bool = False) -> Any:
    """Change something in a JSON value: a value, a key, an item more or less, or something in a JSON text.

    Args:
        value: what is changed.
        random: says how.
        source: values are moved from here.
        is_text: the value is a JSON text inside a snapshot.

    """
    found = [path for path in places(value) if is_text or path[0] not in ("format", "digest")]
    if not found:
        return make_odd(random)
    path = random.choice(found)
    above, key, now = at(value, path[:-1]), path[-1], at(value, path)
    match random.choice(("inside", "inside", "take away", "double", "add", "move", "set", "set")):
        case "inside" if not is_text and (inner := parse(now)):
            above[key] = as_text(change(inner, random, source, is_text=True))
        case "take away":
            del above[key]
        case "double" if isinstance(above, list):
            above.append(now)
        case "add" if isinstance(above, dict):
            above[random.choice(NAMES)] = make_odd(random)
        case "move":
            above[key] = copy.deepcopy(at(source, random.choice(list(places(source)))))
        case _:
            above[key] = make_odd(random)
    return value


def parse(text: Any) -> Any:
    """The object or list that a text is as JSON, if it is one."""
    try:
        return json.loads(text) if isinstance(text, str) and text[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        return None


def as_text(value: Any) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        return "[" * 3000 + "]" * 3000


def seal(snapshot: Any) -> Any:
    """The snapshot with the digest of its content, if it can have one."""
    if not isinstance(snapshot, dict):
        return snapshot
    fields = {name: value for name, value in snapshot.items() if name not in ("format", "digest")}
    try:
        return {**snapshot, "digest": digest_snapshot(fields)}
    except (ValueError, RecursionError):
        return {**snapshot}


def restore(snapshot: Any) -> ToolLoopHandle | None:
    """The loop of a snapshot, whatever it holds; None if that cannot be read."""
    try:
        return ToolLoopHandle.restore(snapshot, ScriptedProvider(SCRIPT), tools=[add, write, AGENT], on_drift="accept")
    except UnreadableSnapshot:
        return None


def look_at(handle: ToolLoopHandle) -> None:
    assert repr(handle)
    assert json.dumps(handle.view())
    assert json.dumps(handle.snapshot())
    assert all(repr(waiting) and waiting.digest for waiting in handle.pending)
    for read in ("messages", "pending_turn", "next_deadline", "total_usage", "usage_log", "grants"):
        getattr(handle, read)
    assert handle.into_result().iterations == handle.iterations


def decide(turn: Yielded) -> None:
    for waiting in turn.pending:
        if waiting.why == "approval":
            turn.approve(waiting)
        else:
            turn.deny(waiting, "no")


@settings(max_examples=5000 if IS_DEEP else 60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(SNAPSHOTS), st.integers(1, 5), st.integers(0, 2**32))
def test_a_crafted_snapshot_is_unreadable_or_a_loop_that_can_be_driven(
    snapshot: dict[str, Any], changes: int, seed: int
) -> None:
    """Nothing else is raised, and no tool runs twice."""
    crafted, random = copy.deepcopy(snapshot), Random(seed)
    for _ in range(changes):
        crafted = change(crafted, random, snapshot)
    RAN.clear()
    logging.disable(logging.CRITICAL)
    try:
        handle = restore(seal(crafted))
        if handle is None:
            return
        look_at(handle)
        try:
            for _ in range(10):
                if not isinstance(turn := handle.run(decide), Yielded):
                    break
                look_at(handle)
                turn.continue_loop()
        except ToolLoopError:
            pass  # what it holds cannot go on; the caller is told why
        look_at(handle)
        assert len(set(RAN)) == len(RAN)
    finally:
        logging.disable(logging.NOTSET)


def craft(name: str, **fields: Any) -> Any:
    """A snapshot of the golden files with other fields in its outermost loop."""
    path = Path(f"tests/recorded/golden/format-1-{name}.json")
    golden = json.loads(path.read_text("utf-8"))
    snapshot = golden.get("snapshot", golden)
    snapshot["loops"][0] |= fields
    return seal(snapshot)


def double_calls(name: str) -> Any:
    golden = craft(name)
    return craft(
        name, round={**(round_ := golden["loops"][0]["round"]), "calls": [*round_["calls"], round_["calls"][0]]}
    )


CRAFTED: dict[str, Any] = {
    "a response without content": craft("executed", response="{}"),
    "a response whose text is null": craft("finished", response='{"content":[{"type":"text","text":null}]}'),
    "a role that does not exist": craft("executed", messages=['{"role":"shorter","content":"x"}']),
    "two calls with the same id": double_calls("deciding"),
    "a round of another reply": craft("deciding", iterations=0),
    "a call whose loop is missing": seal({**(nest := craft("nested")), "loops": nest["loops"][:1]}),
    "parameters of wrong types": craft(
        "ready", setup={**craft("ready")["loops"][0]["setup"], "params": '{"model":"m","max_tokens":9,"tools":1}'}
    ),
    "values nested 3,000 deep": {**craft("ready"), "more": make_nested(3000, is_list=True)},
}


@each("snapshot", CRAFTED.values())
def test_what_no_loop_can_be_is_unreadable(snapshot: dict[str, Any]) -> None:
    """Types, roles, ids, places of loops, parameters."""
    with pytest.raises(UnreadableSnapshot):
        ToolLoopHandle.restore(snapshot, ScriptedProvider([]), tools=[add, write, AGENT], on_drift="accept")
