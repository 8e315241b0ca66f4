"""Every limit of a loop, through its handles: where it stops, what it leaves, and how it goes on, also after sleep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.each import each
from tests.loop.concurrency import either_kind
from tests.loop.limited import PARTS, SLEEPS, STORY, some_sleeps, trial
from tests.loop.support import failed, refused, results_in, user
from toolloop import Budget, LoopConfig, LoopContext, Texts, ToolLoopHandle
from toolloop.errors import IllegalCommand, MaxDepthExceeded
from toolloop.terminations import BudgetExceeded, MaxIterations, NaturalEnd, PauseLimit, Timeout
from toolloop.testing import ScriptedProvider

# Of each limit: the figures at which it stops the story, and where: after so many requests and tools.
STAIRS: dict[str, dict[int, tuple[int, int]]] = {
    "max_iterations": {0: (0, 0), 1: (1, 2), 2: (2, 2), 3: (3, 3)},
    "max_pauses": {0: (2, 2)},
    "requests": {0: (0, 0), 1: (1, 2), 2: (2, 2), 3: (3, 3)},
    "tool_calls": {0: (0, 0), 1: (1, 1), 2: (1, 2), 3: (3, 3)},
    "input_tokens": {0: (0, 0), 1: (1, 2), 100: (1, 2), 101: (2, 2), 200: (2, 2), 201: (3, 3), 300: (3, 3)},
    "output_tokens": {1: (1, 2), 50: (1, 2), 51: (2, 2)},
    "total_tokens": {1: (1, 2), 150: (1, 2), 151: (2, 2)},
    "timeout": {0: (0, 0)},
}
USES = {"requests": 1, "input_tokens": 100, "output_tokens": 50, "total_tokens": 150}  # of one request
ENOUGH = {"timeout": 600, "output_tokens": 151, "total_tokens": 451}  # where the last stair and one are not
WHOLE = [
    user(),
    ("assistant", ["two", "t1", "t2"]),
    ("user", ["t1 is done", "t2 is done"]),
    ("assistant", ["wait", "one", "t3"]),
    ("user", ["t3 is done"]),
    ("assistant", ["end"]),
]


def end_of(name: str, limit: int, requests: int, tools: int) -> Any:
    """The termination that a limit causes."""
    match name:
        case "max_iterations":
            return MaxIterations(limit)
        case "max_pauses":
            return PauseLimit(limit)
        case "timeout":
            return Timeout(limit)
        case _:
            return BudgetExceeded(name, limit, tools if name == "tool_calls" else requests * USES[name])


def words(messages: Any) -> list[Any]:
    """A history in few words: roles, texts, ids of calls, results."""
    short: list[Any] = []
    for message in messages:
        if isinstance(message["content"], str):
            short.append(message)
            continue
        said = [block.get("text") or block.get("id") or block["content"] for block in message["content"]]
        if short and not isinstance(short[-1], dict) and short[-1][0] == message["role"]:
            short[-1][1].extend(said)
        else:
            short.append((message["role"], said))
    return short


@each(
    ("name", "kind", "sleep"),
    [
        *((name, "sync", None) for name in STAIRS),
        *(("requests", kind, sleep) for kind, sleep in SLEEPS),
        ("max_pauses", "sync", "sqlite"),
        ("timeout", "sync", "snapshot"),
    ],
)
def test_each_limit_stops_at_its_figure_and_extend_goes_on_there(
    kind: str, sleep: str | None, name: str, tmp_path: Path
) -> None:
    """Step by step up to the natural end: nothing runs twice, and another limit that is extended is no help."""
    stairs = STAIRS[name]
    with trial(kind, sleep, tmp_path) as at:
        at.begin({name: min(stairs)})
        for limit, (requests, tools) in stairs.items():
            at.extend({name: limit})
            done = at.run()
            ended = end_of(name, limit, requests, tools)
            assert (done.termination, at.so_far(), at.left(name)) == (ended, (requests, tools), 0)
            assert (done.iterations, len(done.usage_log), len(at.handle.usage_log)) == (requests,) * 3
            assert done.total_usage.input_tokens == at.handle.total_usage.input_tokens == requests * 100
            at.slept()
            at.extend({"max_iterations": 99, "max_pauses": 99, "timeout": 600, "total_tokens": 9999} | {name: limit})
            again = at.run()
            assert (again.termination, at.so_far()) == (ended, (requests, tools))
            at.slept()
        at.extend({name: ENOUGH.get(name, max(stairs) + 1)})
        at.slept()
        done = at.run()
        assert (done.termination, done.text, at.so_far()) == (NaturalEnd(), "end", (4, 3))
        assert words(at.handle.messages) == WHOLE
        assert at.ran == ["t1", "t2", "t3"]
        at.assert_recorded(2 * len(stairs) + 1)


@each(
    ("name", "kind", "sleep"),
    [*((name, "sync", "snapshot") for name in STAIRS), ("requests", "asyncio", "sqlite")],
)
def test_a_limit_counts_what_was_before_the_sleep(kind: str, sleep: str, name: str, tmp_path: Path) -> None:
    """A loop that sleeps after every turn stops where one stops that never does."""
    (limit, there), *_ = list(STAIRS[name].items())[-1:]
    with trial(kind, sleep, tmp_path) as at:
        at.begin({name: limit})
        while not at.handle.is_finished:
            turn: Any = at.peer.next_turn()
            at.slept()
            if not at.handle.is_finished:
                at.peer.say(at.peer.turn().continue_loop)
        assert (turn.termination, at.so_far()) == (end_of(name, limit, *there), there)


@each(
    ("name", "limit"), [*((name, max(stairs)) for name, stairs in STAIRS.items()), ("tool_calls", 1), ("requests", 1)]
)
def test_what_a_limit_leaves_is_a_history_that_the_api_takes(name: str, limit: int, tmp_path: Path) -> None:
    """Each call has its result, of which those that did not run say so; a further user turn may follow."""
    with trial("sync", None, tmp_path) as at:
        requests, tools = STAIRS[name][limit]
        at.begin({name: limit}).run()
        answers = [message for message in at.handle.messages[1:] if message["role"] == "user"]
        told = [block for message in answers for block in results_in(message)]
        assert [block["tool_use_id"] for block in told] == ["t1", "t2", "t3"][: (0, 2, 2, 3)[requests]]
        assert [block["content"] == Texts().not_run for block in told].count(True) == len(told) - tools
        at.peer.handle.follow_up([user("go on")])
        at.extend({name: 9999})
        assert at.run().text == "fine"


@either_kind
@each("limits", [{"max_iterations": 2}, {"max_pauses": 0}, {"timeout": 60}])
def test_a_further_user_turn_counts_anew_but_for_the_budget(kind: str, limits: dict[str, Any], tmp_path: Path) -> None:
    """Iterations, pauses and seconds are of the user turn, after sleep too; the budget is of the loop."""
    with trial(kind, "snapshot", tmp_path) as at:
        at.begin(limits | {"requests": 5})
        first = at.run()
        spent = {name: at.left(name) for name in limits}
        at.slept()
        at.peer.handle.follow_up([user("go on")])
        assert all(
            at.left(name) == limits[name] and (limits[name] == 0 or spent[name] < limits[name]) for name in limits
        )
        assert at.left("requests") == 5 - first.iterations
        assert at.run().text == "fine"
        for _ in range(5 - at.handle.iterations):
            at.peer.handle.follow_up([user("more")])
            assert at.run().text == "fine"
        at.peer.handle.follow_up([user("more")])
        assert at.run().termination == BudgetExceeded("requests", 5, 5)


@some_sleeps
def test_a_config_that_is_given_at_waking_takes_the_place_of_all_limits(kind: str, sleep: str, tmp_path: Path) -> None:
    """Those that were extended, too; and it revives nothing, for that is what `extend` is for."""
    with trial(kind, sleep, tmp_path) as at:
        at.begin({"requests": 1})
        at.run()
        at.extend({"requests": 3})
        at.slept(LoopConfig(budget=Budget(requests=2)))
        assert at.run().termination == BudgetExceeded("requests", 2, 2)
        at.slept(LoopConfig(budget=Budget(requests=9)))
        assert (at.run().termination, at.so_far()) == (BudgetExceeded("requests", 2, 2), (2, 2))
        at.peer.say(at.handle.extend)
        assert at.run().text == "end"


def test_one_part_of_a_budget_is_not_extended_by_another(tmp_path: Path) -> None:
    """A budget is given as a whole: what it does not name has no limit any more."""
    with trial("sync", None, tmp_path) as at:
        at.begin({"requests": 1, "tool_calls": 1})
        assert at.run().termination == BudgetExceeded("tool_calls", 1, 1)
        at.extend({"requests": 9, "tool_calls": 1})
        assert at.run().termination == BudgetExceeded("tool_calls", 1, 1)
        at.extend({"requests": 1, "tool_calls": 2})
        assert (at.run().termination, at.ran) == (BudgetExceeded("requests", 1, 1), ["t1", "t2"])
        at.extend({"requests": 9})
        assert at.run().text == "end"


@each(("depth", "deep"), [(1, False), (2, True), (3, True)])
def test_depth_survives_sleep_and_cannot_be_extended(depth: int, deep: bool) -> None:
    """One below the limit runs; at it, and above, nothing ever does."""
    parts: dict[str, Any] = {"params": {"model": "claude-opus-5-5", "max_tokens": 9, "messages": [user()]}}
    provider = ScriptedProvider([STORY[3]])
    new = ToolLoopHandle(provider, config=LoopConfig(max_depth=2), context=LoopContext(depth=depth), **parts)
    for handle in (new, ToolLoopHandle.restore(new.snapshot(), provider)):
        assert handle.depth == depth
        if not deep:
            continue
        error = failed(handle.next_turn()).error
        assert isinstance(error, MaxDepthExceeded)
        assert (error.current, error.limit) == (depth, 2)
        with refused(handle, IllegalCommand, "extend()"):
            handle.extend(max_iterations=99)
        again = ToolLoopHandle.restore(handle.snapshot(), provider)
        assert isinstance(failed(again.next_turn()).error, MaxDepthExceeded)
    assert deep or handle.run().unwrap().text == "end"
    assert len(provider.requests) == (0 if deep else 1)


def test_all_parts_of_the_budget_are_tried() -> None:
    """Another part of `Budget` would need its stairs here."""
    assert {*PARTS} <= {*STAIRS}
    assert {field.name for field in Budget.__attrs_attrs__} == {*PARTS}
