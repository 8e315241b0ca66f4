"""Waking a stored loop: policies judge once more, what changed is named, and what was lost is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.concurrency import either_kind
from tests.kit.failing import FailingStore
from tests.kit.support import expect_yielded, results_in
from tests.kit.tools import LOOK, PAY, SEND, look, pay, send
from tests.kit.world import APPROVED, AnyHandle, World, hold_at
from toolloop import Answer, Ask, Deny, LoopConfig, Rerun, tool
from toolloop.errors import Conflict, Drift, StoreError
from toolloop.machine.values.setup import Texts
from toolloop.stores.memory import MemoryStore
from toolloop.testing import reply

ONE_BY_ONE: dict[str, Any] = {"max_parallel_tools": 1}


def lose_driver(world: World, **more: Any) -> AnyHandle:
    """Another handle, after the driver was lost in the first call of a round of which the second had not begun."""
    world.script = (reply(calls=[PAY, LOOK]), reply("done"))
    world.config = {**ONE_BY_ONE, **world.config}
    first = world.open()
    with hold_at(world, "t1", first) as turn:
        second = world.open(take_over=True, **more)
        second.decide(t1=Answer("it was paid", by="ben"))
    with pytest.raises(Conflict):
        turn.result()
    return second


def list_told(world: World) -> list[Any]:
    return [block["content"] for block in results_in(world.requests[-1]["messages"][-1])]


# --- policies --------------------------------------------------------------------------------------------------------


def raises(*_: Any) -> Any:
    raise ValueError("a bug")


@pytest.mark.parametrize(
    ("policy", "waits", "result"),
    [
        (lambda *_: None, [], "text of a"),
        (lambda *_: Deny("not any more"), [], Texts().denied.format(reason="not any more")),
        (lambda *_: Ask("sure?"), ["t3"], "text of a"),
        (raises, ["t3"], "text of a"),
        (lambda *_: "yes", ["t3"], "text of a"),
    ],
    ids=["no opinion", "deny", "ask", "raises", "nonsense"],
)
def test_policies_judge_once_more_what_has_not_started(policy: Any, waits: list[str], result: str) -> None:
    """There was no policy before; after waking there is one, and it fails closed."""
    world = World("sync", MemoryStore(), config={"on_tool_call": lambda *_: None})
    peer = lose_driver(world, config=LoopConfig(on_tool_call=policy, **ONE_BY_ONE))
    asked: list[str] = []

    def ask(turn: Any) -> None:
        asked.extend(call.id for call in turn.pending)
        turn.approve_all()

    assert peer.run(ask).unwrap().text == "done"
    assert asked == waits
    assert list_told(world) == ["it was paid", result]


# --- what was lost ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["rerun", "answer", "deny"])
def test_what_is_said_of_an_uncertain_call_is_what_happens(word: str) -> None:
    """Rerun runs it once more, `Answer` says how it ended, `Deny` that the end is unknown; the model sees which."""
    world = World("sync", MemoryStore(), script=(reply(calls=[PAY]), reply("done")))
    with hold_at(world, "t1", world.open()) as turn:
        second = world.open(take_over=True)
        waiting = expect_yielded(second.run())
        assert [(call.id, call.why) for call in waiting.pending] == [("t1", "uncertain")]
        second.say(
            {
                "rerun": lambda: waiting.rerun("t1", by="ben"),
                "answer": lambda: waiting.answer("t1", "the bank says yes", by="ben"),
                "deny": lambda: waiting.deny("t1", "no trace of it", by="ben"),
            }[word]
        )
        assert second.run().unwrap().text == "done"
    with pytest.raises(Conflict):
        turn.result()
    texts = {"rerun": "pay 1", "answer": "the bank says yes", "deny": Texts().uncertain.format(reason="no trace of it")}
    assert list_told(world) == [texts[word]]
    assert world.ran == ["t1"] * (1 + (word == "rerun"))


@either_kind
def test_who_opens_a_loop_just_as_its_driver_ends_does_not_wake_it(kind: str) -> None:
    """It looked as if it ran; when the lease was to be had, the turn was over, and nothing was lost."""
    world = World(kind, MemoryStore(), script=(reply(calls=[PAY]), reply("done")))
    first = world.open()
    with hold_at(world, "t1", first) as turn:

        def let_it_end(number: int) -> None:
            if store.asked[-1] == "acquire" and number == store.asked.index("acquire") + 1:
                turn.go.set()
                turn.result()

        store = FailingStore(world.store, fails=let_it_end)
        other = World(kind, store, script=world.script)
        second = other.open()
    assert "Woken" not in world.journal()[1:]
    first.say(first.turn().continue_loop)
    assert second.run().unwrap().text == "done"


# --- drift -----------------------------------------------------------------------------------------------------------


@tool(name="pay", needs_approval=True)
def guarded(amount: int) -> str:
    """Pay, once."""
    return str(amount)


def test_a_call_whose_tool_is_gone_gets_a_result_that_says_so() -> None:
    """Even an approved one: it cannot run, and the model gets the reason."""
    world = World("sync", MemoryStore(), script=(reply(calls=[SEND]), reply("done")))
    peer = world.open()
    expect_yielded(peer.run())
    peer.decide(t2=APPROVED)
    other = world.open(tools=(pay, look), on_drift="accept")
    assert other.run().unwrap().text == "done"
    assert list_told(world) == [Texts().tool_gone.format(name="send")]
    assert world.ran == []


def test_a_handle_with_older_tools_does_not_drive_on() -> None:
    """The loop was opened elsewhere with other tools, and went on: the old handle gets an error, but can decide."""
    world = World("sync", MemoryStore(), script=(reply(calls=[LOOK]), reply(calls=[SEND]), reply("done")))
    old = world.open()
    expect_yielded(old.next_turn())
    new = world.open(tools=(guarded, send, look), on_drift="accept")
    expect_yielded(new.run())
    assert [call.id for call in expect_yielded(old.run()).pending] == ["t2"]
    old.decide(t2=APPROVED)
    with pytest.raises(Drift, match="the approval of tool 'pay' changed from always to never"):
        old.run()
    assert world.ran == ["t3"]
    assert new.run().unwrap().text == "done"
    assert world.ran == ["t3", "t2"]


@either_kind
def test_an_interrupted_loop_is_opened_and_decided_with_other_tools(kind: str) -> None:
    """What its driver left is uncertain at once; only who drives it needs the tools of its open calls."""
    world = World(kind, MemoryStore(), script=(reply(calls=[PAY]), reply("done")))
    with hold_at(world, "t1", world.open()) as turn:
        watcher = world.open(tools=(), take_over=True)
        assert [(each.id, each.why) for each in watcher.handle.pending] == [("t1", "uncertain")]
        watcher.decide(t1=Rerun())
        with pytest.raises(Drift) as caught:
            watcher.run()
    assert caught.value.changes == ("tool 'pay' is missing",)
    with pytest.raises(Conflict):
        turn.result()
    assert world.open().text() == "done"
    assert world.ran == ["t1", "t1"]


def test_a_loop_can_be_looked_at_while_another_drives() -> None:
    """Whatever tools are here."""
    world = World("sync", MemoryStore(), script=(reply(calls=[PAY]), reply("done")))
    with hold_at(world, "t1", world.open()) as turn:
        assert world.open(tools=()).handle.pending == ()
    expect_yielded(turn.result())


# --- what others say while a driver takes the loop over ---------------------------------------------------------------

LOOKUP: Any = {"name": "look", "description": "Look up.", "input_schema": {"type": "object"}}


def takes_over(kind: str, meddle: Callable[[AnyHandle], object], *, fails: bool = False) -> tuple[World, AnyHandle]:
    """Return a handle with another tool; once it is about to store that it takes the loop over, another one speaks."""
    inner = MemoryStore()
    other = World(kind, inner, script=(reply("one"), reply("two")), tools=(pay,)).open()
    other.run()
    other.say(lambda: other.handle.follow_up("more"))

    def speak(_: int) -> Any:
        if store.asked[-1] != "append" or store.asked.count("append") > 1:
            return None
        meddle(other)
        other.flush()
        return "before" if fails else None

    store = FailingStore(inner, fails=speak)
    world = World(kind, store, script=(reply("one"), reply("two")), tools=(pay, look))
    return world, world.open()


def change(other: AnyHandle) -> None:
    other.handle.update_params(max_tokens=77, system="Be brief.")
    other.handle.extend(max_iterations=33)


@pytest.mark.parametrize("fails", [False, True])
@either_kind
def test_what_another_handle_changes_just_before_a_driver_takes_over_stands(kind: str, fails: bool) -> None:
    """The setup of the driver is made of the loop as it is then; also if the store failed in between."""
    world, peer = takes_over(kind, change, fails=fails)
    if fails:
        with pytest.raises(StoreError):
            peer.run()
    assert peer.text() == "two"
    assert (world.requests[-1]["max_tokens"], world.requests[-1]["system"]) == (77, "Be brief.")
    setup = world.state().root.setup
    assert (setup.limits.max_iterations, [facts.name for facts in setup.tools]) == (33, ["pay", "look"])
    assert world.journal().count("Woken") == 1


@either_kind
def test_what_another_handle_changes_just_before_may_be_a_drift(kind: str) -> None:
    """Its parameters do not fit the tools of the driver, which sends nothing."""
    world, peer = takes_over(kind, lambda other: other.handle.update_params(tools=[LOOKUP]))
    with pytest.raises(Drift, match="the stored parameters do not fit the current tools"):
        peer.run()
    assert (world.requests, "Woken" in world.journal()) == ([], False)
