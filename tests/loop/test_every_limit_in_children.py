"""Every limit where loops run inside of calls: a child's own ends the child, one of a loop above stops all below."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from tests.each import each
from tests.loop.concurrency import DEADLINE, either_kind
from tests.loop.limited import PARTS, Trial, config_of, some_sleeps, step, story, trial, walk
from tests.loop.support import HUNDRED, results_in, yielded
from tests.loop.test_every_limit import STAIRS
from toolloop import Approve, Ask, LoopConfig, Texts, sub_loop
from toolloop.terminations import BudgetExceeded, MaxIterations, NaturalEnd
from toolloop.testing import call, reply

CHILD = {"model": "claude-haiku-4-5", "max_tokens": 64}
USES = {"requests": 1, "input_tokens": 100, "output_tokens": 50, "total_tokens": 150}  # of one request

# 9 requests and 9 calls, of which three are loops: by the name of the loop, round by round.
PLANS = {
    "hello": [["t1", "p1", "p2"], ["t2"]],
    "p1": [["c1", "c2"]],
    "p2": [["p3", "c3"]],
    "p3": [["g1"]],
}


def asked(name: str) -> Any:
    """The call of a loop, or of a tool, by its name."""
    return call("clerk", {"prompt": name}, id=name) if name.startswith("p") else step(name)


def name_of(request: Any) -> str:
    """Which loop makes a request: its task is its name."""
    content = request["messages"][0]["content"]
    return str(content if isinstance(content, str) else content[0]["text"])


def planned(request: Any) -> Any:
    """What the model says to each of the loops."""
    name = name_of(request)
    plan, said = PLANS.get(name, []), sum(message["role"] == "assistant" for message in request["messages"])
    if said < len(plan):
        return reply(calls=[asked(each) for each in plan[said]], usage=HUNDRED)
    return reply(f"{name} is done", usage=HUNDRED)


def told_by_child(request: Any) -> Any:
    """The outermost loop hands all of its work on, level by level; the innermost tells the story of all limits."""
    name = name_of(request)
    if name == "p9":
        return story(request)
    done = any(message["role"] == "assistant" for message in request["messages"])
    deeper = {"hello": "p8", "p8": "p9"}[name]
    return reply(f"{name} is done", usage=HUNDRED) if done else reply(calls=[asked(deeper)], usage=HUNDRED)


def clerk(levels: int = 2, config: LoopConfig | None = None) -> Any:
    """A tool that is a loop, of which the innermost has this configuration."""
    inner = [clerk(levels - 1, config)] if levels > 1 else []
    given = LoopConfig() if config is None or inner else config
    return sub_loop("clerk", "Helps.", params=CHILD, tools=[walk, *inner], config=given)


def names_begun(at: Trial) -> list[str]:
    """All calls of the tree that were started, by their own ids."""
    return sorted(path.rpartition("/")[2] for path in at.handle.state.root.started)


def answer_to(at: Trial, call_id: str) -> Any:
    """The result block of a call of the outermost loop."""
    results = [block for message in at.handle.messages[2::2] for block in results_in(message)]
    return next(block for block in results if block["tool_use_id"] == call_id)


# --- a budget of the whole tree --------------------------------------------------------------------------------------


@each(
    ("name", "kind", "sleep"),
    [
        *((name, "sync", None) for name in PARTS),
        ("requests", "sync", "sqlite"),
        ("tool_calls", "asyncio", "snapshot"),
    ],
)
def test_a_budget_stops_the_whole_tree_and_extend_goes_on_inside(
    name: str, kind: str, sleep: str | None, tmp_path: Path
) -> None:
    """At the very figure, wherever it is in the tree; step by step to the natural end, in which each thing ran once."""
    with trial(kind, sleep, tmp_path, planned, tools=[walk, clerk()]) as at:
        at.begin({name: 0})
        done, limit, extensions = at.run(), 0, 0
        while done.termination != NaturalEnd():
            begun = at.so_far()
            used = len(names_begun(at)) if name == "tool_calls" else begun[0] * USES[name]
            assert done.termination == BudgetExceeded(name, limit, used)
            assert used == limit if name in ("requests", "tool_calls") else used < limit + 3 * USES[name]
            assert at.left(name) == 0
            assert len(done.usage_log) == begun[0] == done.total_usage.input_tokens / 100
            assert sorted(at.ran) == [each for each in names_begun(at) if not each.startswith("p")]
            at.slept()
            at.extend({"max_iterations": 99} | {name: limit})
            assert (at.run().termination, at.so_far()) == (done.termination, begun)
            limit, extensions = used + 1, extensions + 2
            at.extend({name: limit})
            at.slept()
            done = at.run()
            more = at.so_far()[0] - begun[0]
            assert more == 1 if name == "requests" else more <= 9
        assert (done.text, at.so_far()) == ("hello is done", (9, 6))
        assert names_begun(at) == ["c1", "c2", "c3", "g1", "p1", "p2", "p3", "t1", "t2"]
        assert [answer_to(at, each)["content"] for each in ("t1", "p1", "p2", "t2")] == [
            f"{each} is done" for each in ("t1", "p1", "p2", "t2")
        ]
        at.assert_recorded(extensions)


@each(
    ("limits", "children", "used"),
    [
        ({"requests": 2}, 1, 2),
        ({"requests": 3}, 2, 3),
        ({"input_tokens": 101}, 3, 400),
        ({"total_tokens": 151}, 3, 600),
    ],
)
def test_requests_of_children_that_run_side_by_side(
    limits: dict[str, int], children: int, used: int, tmp_path: Path
) -> None:
    """As many as are left go out. Of tokens nobody knows before: each child that runs may pass them by one request."""
    together = threading.Barrier(children)

    def model(request: Any) -> Any:
        if name_of(request) != "hello":
            return reply("done", usage=HUNDRED)
        if len(request["messages"]) == 1:
            return reply(calls=[asked(name) for name in ("p1", "p2", "p3")], usage=HUNDRED)
        return reply("end", usage=HUNDRED)

    with trial("sync", None, tmp_path, model, tools=[clerk()]) as at:
        at.before = lambda request: together.wait(DEADLINE) if name_of(request) != "hello" else None
        at.begin(limits)
        ((name, limit),) = limits.items()
        assert at.run().termination == BudgetExceeded(name, limit, used)
        assert at.so_far() == (1 + children, 0)
        at.before = lambda _: None
        at.extend({name: 9999})
        assert (at.run().text, at.so_far()) == ("end", (5, 0))


@some_sleeps
def test_a_call_that_was_approved_when_a_budget_stopped_it_is_not_asked_for_again(
    kind: str, sleep: str, tmp_path: Path
) -> None:
    """The caller's word stands: `extend` runs it, inside the child."""
    asking = LoopConfig(on_tool_call=lambda _call, _view: Ask())
    with trial(kind, sleep, tmp_path, planned, tools=[walk, clerk(1, asking)]) as at:
        at.begin({"tool_calls": 3})
        turn = yielded(at.peer.next_turn())
        assert [waiting.path for waiting in turn.pending] == [("p1", "c1"), ("p1", "c2"), ("p2", "c3")]
        at.slept()
        at.peer.decide(**{"/".join(waiting.path): Approve(by="ana") for waiting in turn.pending})
        at.peer.say(at.peer.turn().continue_loop)
        assert (at.run().termination, at.ran) == (BudgetExceeded("tool_calls", 3, 3), ["t1"])
        for limit in (4, 5):
            at.slept()
            at.extend({"tool_calls": limit})
            assert (at.run().termination, len(at.ran)) == (BudgetExceeded("tool_calls", limit, limit), limit - 2)
        at.extend({"tool_calls": 99})
        assert at.run().text == "hello is done"
        assert sorted(at.ran) == ["c1", "c2", "c3", "t1", "t2"]


# --- a limit of a child ----------------------------------------------------------------------------------------------


def stair_ends() -> list[Any]:
    """Each limit at the last of its figures, and the one at which it does not stop the story any more."""
    last = {"timeout": 600, "output_tokens": 151, "total_tokens": 451}
    rows: list[Any] = []
    for name, stairs in STAIRS.items():
        rows.append((name, max(stairs), stairs[max(stairs)]))
        rows.append((name, last.get(name, max(stairs) + 1), (4, 3)))
    return rows


@each(("name", "limit", "there"), stair_ends())
def test_a_childs_own_limit_ends_the_child_alone(name: str, limit: int, there: tuple[int, int], tmp_path: Path) -> None:
    """At the very figure at which a loop of its own ends; its call is told why, and the loops above go on."""
    config = LoopConfig(**config_of({name: limit}))
    with trial("sync", None, tmp_path, told_by_child, tools=[clerk(2, config)]) as at:
        done = at.begin({}).run()
        assert (done.text, done.termination) == ("hello is done", NaturalEnd())
        assert at.so_far() == (there[0] + 4, there[1])
        assert len(done.usage_log) == there[0] + 4
        assert done.total_usage.output_tokens == (there[0] + 4) * 50
        told = told_to_above(at)
        reason = {"max_iterations": "max iterations", "max_pauses": "pause limit", "timeout": "timeout"}
        if there == (4, 3):
            assert (told["content"], told.get("is_error")) == ("end", None)
        else:
            assert reason.get(name, "budget exceeded") in told["content"]
            assert told["is_error"] is True


def told_to_above(at: Trial) -> Any:
    """The result that the loop above the innermost was given."""
    middle = [request.json for request in at.api.requests if name_of(request.json) == "p8"]
    return results_in(middle[-1]["messages"][-1])[0]


@each(
    ("name", "limit", "kind", "sleep"),
    [
        ("max_iterations", 3, "sync", "sqlite"),
        ("requests", 2, "asyncio", "snapshot"),
        ("tool_calls", 1, "sync", "snapshot"),
        ("total_tokens", 151, "sync", "snapshot"),
    ],
)
def test_a_childs_limit_counts_what_was_before_the_sleep(
    kind: str, sleep: str, name: str, limit: int, tmp_path: Path
) -> None:
    """The tree sleeps whenever a call of the child waits; the child ends where one does that never sleeps."""
    config = LoopConfig(on_tool_call=lambda _call, _view: Ask(), **config_of({name: limit}))
    with trial(kind, sleep, tmp_path, told_by_child, tools=[clerk(2, config)]) as at:
        at.begin({})
        yielded(at.peer.next_turn())
        at.slept()
        inside = at.handle.view()["children"][0]["children"][0]
        assert inside["path"] == ["p8", "p9"]
        assert inside["left"][name.removeprefix("max_")] == limit - {"tool_calls": 0, "total_tokens": 150}.get(name, 1)
        while not at.handle.is_finished:
            turn: Any = at.peer.turn() if at.handle.pending else at.peer.next_turn()
            at.slept()
            if at.handle.is_finished:
                break
            at.peer.decide(**{"/".join(each.path): Approve(by="ana") for each in at.handle.pending})
            at.peer.say(at.peer.turn().continue_loop)
        requests, tools = STAIRS[name][limit]
        assert (turn.text, at.so_far()) == ("hello is done", (requests + 4, tools))
        assert told_to_above(at)["is_error"] is True


@either_kind
def test_extending_the_outermost_loop_gives_a_child_nothing(kind: str, tmp_path: Path) -> None:
    """A child's limits are its own; what stops the tree is the limit of the outermost, and `extend` is for that."""
    config = LoopConfig(max_iterations=1)
    with trial(kind, None, tmp_path, told_by_child, tools=[clerk(2, config)]) as at:
        assert at.begin({"requests": 3}).run().termination == BudgetExceeded("requests", 3, 3)
        at.extend({"requests": 99, "max_iterations": 99})
        assert (at.run().text, sorted(at.ran), len(at.api.requests)) == ("hello is done", ["t1", "t2"], 5)
        assert "max iterations" in told_to_above(at)["content"]


@each(
    ("outermost", "own", "reached"),
    [(0, 9, -1), (1, 9, 0), (2, 9, 1), (3, 9, 2), (None, 9, 2), (9, 2, 1), (9, 1, 1), (None, None, 2), (2, 1, 1)],
)
def test_depth_is_bounded_by_the_loop_above_and_by_the_childs_own(
    outermost: int | None, own: int | None, reached: int, tmp_path: Path
) -> None:
    """One below the limit runs; at it none does, and the call is told."""
    inner = sub_loop("clerk", "Helps.", params=CHILD, tools=[walk], config=LoopConfig(max_depth=own))
    outer = sub_loop("clerk", "Helps.", params=CHILD, tools=[inner], config=LoopConfig(max_depth=None))
    with trial("sync", None, tmp_path, told_by_child, tools=[outer]) as at:
        at.begin({"max_depth": outermost})
        result = at.peer.run()
        deepest = max((["hello", "p8", "p9"].index(name_of(request.json)) for request in at.api.requests), default=-1)
        assert deepest == reached
        assert (reached == -1) == (type(result).__name__ == "Error")
        if reached == 0:
            assert "too deep" in answer_to(at, "p8")["content"]
        if reached == 1:
            assert "too deep" in told_to_above(at)["content"]


# --- iterations of the outermost loop --------------------------------------------------------------------------------


@some_sleeps
def test_iterations_of_children_are_none_of_the_loop_above(kind: str, sleep: str, tmp_path: Path) -> None:
    """The outermost loop stops after its own; those of its children are in its usage."""
    with trial(kind, sleep, tmp_path, planned, tools=[walk, clerk()]) as at:
        at.begin({"max_iterations": 1})
        for limit, requests in ((1, 7), (2, 8)):
            done = at.run()
            assert (done.termination, len(at.api.requests)) == (MaxIterations(limit), requests)
            assert (done.iterations, len(done.usage_log), at.left("max_iterations")) == (limit, requests, 0)
            at.slept()
            at.extend({"max_iterations": limit + 1})
        assert (at.run().text, at.so_far()) == ("hello is done", (9, 6))


def test_the_history_that_a_budget_leaves_goes_on_with_a_further_turn(tmp_path: Path) -> None:
    """Wherever in the tree it stops: each call has its result, and those that came to no end say so."""
    for limit in range(1, 10):
        with trial("sync", None, tmp_path, planned, tools=[walk, clerk()]) as at:
            at.begin({"tool_calls": limit}).run()
            for name in ("t1", "p1", "p2", *(["t2"] if limit == 9 else [])):
                known = (f"{name} is done", Texts().cancelled) if name in names_begun(at) else (Texts().not_run,)
                assert answer_to(at, name)["content"] in known
            at.handle.follow_up([{"role": "user", "content": "more"}])
            at.extend({"tool_calls": 99})
            assert at.run().termination == NaturalEnd()
