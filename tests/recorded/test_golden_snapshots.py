"""Snapshots of every format ever released load and go on. The files are never edited, and never written by a test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.kit.each import each
from tests.kit.support import results_in
from tests.kit.tools import user
from toolloop import Approve, Continue, InjectMessages, LoopConfig, ToolLoopHandle, Yielded, sub_loop, tool
from toolloop.errors import ModelError
from toolloop.stores import FORMAT
from toolloop.terminations import MaxIterations
from toolloop.testing import FakeMessagesAPI, call, fault, reply, server_call, server_result

GOLDEN = Path(__file__).with_name("golden")
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
LOOKUP = {"name": "lookup", "description": "Look up.", "input_schema": {"type": "object", "properties": {}}}


@tool
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@tool(needs_approval=True)
def write(path: str, text: str) -> str:
    """Replace a text file."""
    return f"wrote {path}"


TOOLS = (add, write)
# Only where calls have loops inside.
AGENT = sub_loop(
    "research",
    "Look into it.",
    params={"model": "claude-opus-5-5", "max_tokens": 128},
    tools=TOOLS,
    config=LoopConfig(max_parallel_tools=8),
)
ADD = call("add", {"a": 1, "b": 2}, id="toolu_add")
WRITE = call("write", {"path": "a", "text": "Grüße \u2028 12"}, id="toolu_write")
BIG = call("write", {"n": 12345678901234567890123456789, "path": "n", "text": "x"}, id="toolu_big")
ASK = call("lookup", {"word": "x"}, id="toolu_lookup")
DIG = call("research", {"prompt": "dig"}, id="toolu_dig")
HM = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
OPEN = server_call("web_search", {"query": "x"}, id="srvtoolu_1")
FOUND = server_result("web_search", id="srvtoolu_1")
# For each state: what the model says on the way there, and after it.
STORIES: dict[str, tuple[list[Any], list[Any]]] = {
    "ready": ([], [reply("end")]),
    "deciding": ([reply("Hm.", calls=[ADD, WRITE, BIG, ASK])], [reply("end")]),
    "decided": ([reply("Hm.", calls=[ADD, WRITE, BIG, ASK])], [reply("end")]),
    "executed": ([reply(calls=[ADD])], [reply("end")]),
    "paused": (
        [reply("so far", content=[OPEN], stop_reason="pause_turn")],
        [reply(content=[FOUND, {"type": "text", "text": "end"}])],
    ),
    "finished": ([reply(calls=[ADD])], [reply("end")]),
    "failed": ([reply(calls=[ADD]), fault(429, retry_after=7)], [reply("end")]),
    "held": (
        [reply("so far", content=[OPEN], stop_reason="pause_turn")],
        [reply(content=[FOUND, {"type": "text", "text": "found"}]), reply("end")],
    ),
    "nested": ([reply("Hm.", calls=[DIG, ADD]), reply("So.", calls=[ADD, WRITE])], [reply("found"), reply("end")]),
    "edited": ([reply(content=[HM], calls=[ADD])], [reply("end")]),
}

DECIDED = ("deciding", "decided")


def tools_of(name: str) -> tuple[Any, ...]:
    return (*TOOLS, AGENT) if name == "nested" else TOOLS


@contextmanager
def told(name: str) -> Iterator[ToolLoopHandle]:
    """A loop in the state of that story."""
    before, _ = STORIES[name]
    with FakeMessagesAPI(before) as api:
        handle = ToolLoopHandle(
            api.client(),
            params={
                "model": "claude-opus-5-5",
                "max_tokens": 256,
                "system": "Be brief.",
                "tools": [SEARCH, LOOKUP],
                "messages": [user()],
            },
            tools=tools_of(name),
            config=LoopConfig(max_iterations=1 if name == "finished" else 10, max_parallel_tools=8),
            loop_id="golden",
            clock=lambda: 1_700_000_000.0,
        )
        for _ in before[: 1 if name == "nested" else None]:
            turn = handle.next_turn()
            if name in ("finished", "failed") and isinstance(turn, Yielded):
                turn.continue_loop()
        if name == "finished":
            handle.next_turn()
        if name in DECIDED:
            handle.decide({"toolu_write": Approve({"path": "z", "text": "edited"}, by="ana", reason="safer")})
        if name == "edited":
            handle.messages_mut()[0] = user("shorter")
            handle.resume(Continue())
        if name == "held":
            handle.resume(InjectMessages([user("hurry")]))
        yield handle


def files() -> list[Path]:
    return sorted(GOLDEN.glob("format-*.json"))


def test_every_format_and_every_story_has_its_file() -> None:
    """The newest format is among them, with each state."""
    assert {path.name for path in files()} >= {f"format-{FORMAT}-{name}.json" for name in STORIES}


@each("path", files())
def test_a_golden_snapshot_loads_and_goes_on(path: Path) -> None:
    """It restores without drift, the API takes its next request, and the loop ends as it would have."""
    _, _, name = path.stem.split("-", 2)
    _, after = STORIES[name]
    with FakeMessagesAPI(after, verify_signatures=False) as api:
        snapshot = json.loads(path.read_text("utf-8"))
        handle = ToolLoopHandle.restore(snapshot, api.client(), tools=tools_of(name), on_drift="strict")
        assert (handle.loop_id, handle.messages[0]) == ("golden", user("shorter") if name == "edited" else user())
        check_and_decide(name, handle)
        assert handle.run().unwrap().text == "end"
        assert api.refused == []
        if name in DECIDED:
            check_results(api)
        if name == "edited":  # stale thinking is left out
            assert [block["type"] for block in api.requests[0].json["messages"][1]["content"]] == ["tool_use"]
        if name == "nested":
            child, root = (request.json["messages"][-1] for request in api.requests)
            assert [block["content"] for block in results_in(child)] == ["3", "wrote a"]
            assert [block["content"] for block in results_in(root)] == ["found", "3"]


def check_and_decide(name: str, handle: ToolLoopHandle) -> None:
    """What is particular to a story, and the caller's part in it."""
    match name:
        case "deciding" | "decided":
            turn = handle.pending_turn
            assert turn is not None
            assert [(call.id, call.why) for call in turn.pending] == [("toolu_lookup", "external")]
            edited = turn.calls[1]
            assert edited.decision is not None
            assert (edited.decision.by, edited.decision.reason) == ("ana", "safer")
            assert edited.decision.at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
            turn.answer("toolu_lookup", "found")
        case "nested":
            turn = handle.pending_turn
            assert turn is not None
            assert [call.path for call in turn.pending] == [("toolu_dig", "toolu_write")]
            assert [(entry.path, entry.iteration) for entry in handle.usage_log] == [((), 1), (("toolu_dig",), 1)]
            turn.approve("toolu_write", by="ana")
        case "edited":
            assert handle.state.root.stale_thinking == 3
        case "finished":
            assert handle.into_result().termination == MaxIterations(1)
            handle.extend(max_iterations=2)
        case "failed":
            error = handle.into_result().error
            assert isinstance(error, ModelError)
            assert (error.status, error.kind, error.retry_after) == (429, "rate_limit_error", 7.0)
            handle.retry()


def check_results(api: FakeMessagesAPI) -> None:
    """The round of the decided calls went out whole, big integers included."""
    raw = api.requests[0].body.decode()
    assert '{"n":12345678901234567890123456789,"path":"n","text":"x"}' in raw
    results = results_in(api.requests[0].json["messages"][-1])
    assert [block["tool_use_id"] for block in results] == ["toolu_add", "toolu_write", "toolu_big", "toolu_lookup"]
    assert results[0]["content"] == "3"
    assert results[1]["content"][0]["text"] == "wrote z"
    assert (results[2]["is_error"], results[3]["content"]) == (True, "found")


@each("name", [*STORIES])
def test_the_writer_writes_what_the_golden_file_of_its_format_holds(name: str) -> None:
    """A change of the newest format shows here: then it is a new format, with files of its own."""
    golden = json.loads((GOLDEN / f"format-{FORMAT}-{name}.json").read_text("utf-8"))
    with told(name) as handle:
        assert shape_of(handle.snapshot()) == shape_of(golden)


def shape_of(value: Any) -> Any:
    """A snapshot without what differs from run to run: seconds, and the digest over them."""
    if isinstance(value, dict):
        varying = ("seconds", "active", "digest")
        return {key: "*" if key in varying else shape_of(item) for key, item in value.items()}
    return [shape_of(item) for item in value] if isinstance(value, list) else value


def write_golden_files() -> None:
    """Write the files of the newest format that are not there yet: none is ever edited."""
    for name in STORIES:
        path = GOLDEN / f"format-{FORMAT}-{name}.json"
        if path.exists():
            continue
        with told(name) as handle:
            text = json.dumps(handle.snapshot(), indent=1, ensure_ascii=False)
        path.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    write_golden_files()
