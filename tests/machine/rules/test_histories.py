"""Another history: edits, compactions, thinking that is stale by them, and what the caller of a runner takes over."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from attrs import define, evolve, field
from hypothesis import given, strategies as st

from tests.kit.effort import examples
from tests.kit.machine import making as m
from tests.kit.machine.making import the_call
from tests.kit.machine.worlds import World
from toolloop._usage import IterationUsage, Usage
from toolloop.errors import IllegalCommand
from toolloop.machine.machine import TRANSITIONS
from toolloop.machine.queries import outstanding
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import Judge
from toolloop.machine.record.loop import Loop, Requesting, State, count_messages, list_messages
from toolloop.machine.tree import step
from toolloop.machine.values.calls import Result, Status
from toolloop.machine.values.jsontext import decode, encode
from toolloop.machine.values.setup import KeepResults, Limits, LoopDetection, Setup
from toolloop.machine.values.splicing import Splice

# --- edits and compactions -------------------------------------------------------------------------------------------

ROUND = (m.make_replied("tool_use", m.call("a")), ev.Started("a"), m.make_ended("a"), ev.TurnEnded())
SHORT = (Splice(0, 1, (m.user("short"),)),)


@pytest.mark.parametrize(
    "events",
    [
        (),
        ROUND[:1],
        (*ROUND[:1], m.asks("a")),
        ROUND[:2],
        ROUND,
        (m.make_replied("pause_turn", m.text("so")),),
        (ev.RequestFailed(m.FAILURE),),
        (ev.Stopped(),),
    ],
    ids=lambda events: type(events[-1]).__name__ if events else "begin",
)
def test_an_edit_changes_the_closed_history_and_nothing_else(events: tuple[ev.Event, ...]) -> None:
    """No call, no wait, no limit; and it is known when it was. What compactions left says nothing any more."""
    state = m.state_after(*events)
    state = State({(): state.root._replace(compacted=(("drop_rounds", 5),))})
    edited = step(state, ev.HistoryEdited(SHORT)).root
    assert list(edited.messages) == [m.user("short"), *list(state.root.messages)[1:]]
    assert (edited.edited_at, edited.compacted) == (state.root.iterations, ())
    for name in ("phase", "round", "unjoined", "queued", "usage_log", "container", "iterations"):
        assert getattr(edited, name) == getattr(state.root, name)


def test_a_compaction_notes_what_it_left_and_what_its_summary_used() -> None:
    """No strategy is noted with more than there is now; one that changed nothing is not an edit."""
    spent = IterationUsage(0, usage=Usage(3, 2), kind="summary")
    ready = m.state_after(*ROUND, ev.Continued())
    first = step(ready, ev.HistoryEdited(SHORT, "drop_rounds", before=9, after=5, spent=spent)).root
    assert (first.compacted, first.edited_at) == ((("drop_rounds", 5),), 1)
    assert (first.usage_log[-1], first.total_usage) == (spent, Usage(3, 2))
    assert (first.iterations, first.phase) == (ready.root.iterations, ready.root.phase)
    smaller = step(State({(): first}), ev.HistoryEdited(SHORT, "mask_results", before=5, after=4)).root
    assert smaller.compacted == (("drop_rounds", 4), ("mask_results", 4))
    nothing = step(ready, ev.HistoryEdited((), "drop_rounds", before=9, after=9, problem="longer")).root
    assert (nothing.compacted, nothing.edited_at, nothing.messages) == ((("drop_rounds", 9),), 0, ready.root.messages)
    for other in (
        m.state_after(*ROUND),
        m.state_after(*ROUND[:1]),
        m.state_after(ev.Stopped()),
    ):  # it went on while the summary was written
        late = step(other, ev.HistoryEdited(SHORT, "drop_rounds", before=9, after=5, spent=spent)).root
        assert (late.messages, late.compacted, late.usage_log[-1]) == (other.root.messages, (), spent)


KEPT = m.state_after(
    m.make_replied("tool_use", m.call("a"), m.call("b")),
    *(ev.Started("a"), ev.Started("b"), m.make_ended("a", "long " * 20), m.make_ended("b", "long " * 30)),
    *(ev.TurnEnded(), ev.Continued()),
    keep_results=KeepResults(over=40, head=10, tail=5),
)


def splice_of(change: Any) -> tuple[Splice, ...]:
    """The splice that changes the content of the result of the call `a`."""
    message = decode(KEPT.root.messages[2])
    block = message["content"][0]
    return (
        Splice(
            2,
            3,
            (
                encode(
                    {**message, "content": [{**block, "content": change(block["content"])}, *message["content"][1:]]}
                ),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("event", "kept"),
    [
        (ev.HistoryEdited(splice_of(lambda _: "[redacted]")), ["b"]),
        (ev.HistoryEdited(splice_of(lambda text: f"x{text}")), ["b"]),
        (ev.HistoryEdited(splice_of(lambda text: text)), ["a", "b"]),
        (ev.HistoryEdited((Splice(1, 3),)), []),
        (ev.HistoryEdited(SHORT), ["a", "b"]),
        (ev.HistoryEdited(splice_of(lambda _: "[masked]"), "MaskResults"), ["a", "b"]),
        (ev.HistoryTaken(splice_of(lambda _: "[redacted]")), ["b"]),
    ],
)
def test_a_result_that_a_person_changes_is_forgotten(event: ev.Event, kept: list[str]) -> None:
    """It cannot be read as a whole any more. A compaction keeps it."""
    assert [name for name, _ in step(KEPT, event).root.results] == kept


@pytest.mark.parametrize(
    "content", ["by the way", [{"type": "tool_result", "tool_use_id": "a"}]], ids=["text", "empty"]
)
def test_a_replaced_result_is_forgotten_whatever_replaces_it(content: Any) -> None:
    """Also a message whose content is a text, and a result without content."""
    named = encode({"role": "user", "content": [*decode(KEPT.root.messages[2])["content"][1:]]})
    other = encode({"role": "user", "content": content, "metadata": "tool_result"})
    state = step(KEPT, ev.HistoryEdited((Splice(2, 3, (named, other)),)))
    assert [name for name, _ in state.root.results] == ["b"]


def test_the_turn_that_replaces_another_forgets_its_results() -> None:
    """They are gone with it; in a turn that follows, they stay."""
    ended = m.go(KEPT, m.make_replied("end_turn", m.text("done")))
    follows = ev.FollowedUp((m.user("and now?"),))
    for event, kept in ((follows, ["a", "b"]), (evolve(follows, replace_last=True), [])):
        assert [name for name, _ in step(ended, event).root.results] == kept


# --- stale thinking --------------------------------------------------------------------------------------------------

THOUGHT = m.make_replied("tool_use", m.thinking("one"), m.call("a", "pure"))
CLOSED = (THOUGHT, ev.Started("a"), m.make_ended("a"), ev.TurnEnded(), ev.Continued())


@pytest.mark.parametrize(
    ("event", "mark"),
    [
        (ev.HistoryEdited((Splice(0, 1, (m.user("x"),)),)), 3),
        (ev.HistoryEdited((Splice(2, 3, (m.user("x"),)),)), 0),
        (ev.HistoryEdited((Splice(3, 3, (m.user("x"),)),)), 0),
        (ev.HistoryTaken((Splice(0, 1, (m.user("x"),)),)), 3),
        (ev.HistoryTaken((Splice(3, 3, (m.user("x"),)),)), 0),
        (ev.Changed('{"system":"be kind"}'), 3),
        (ev.Changed('{"tools":[]}'), 3),
        (ev.Changed('{"model":"m"}'), 0),
        (ev.Woken(m.setup(tools=m.OTHER_TOOLS)), 3),
        (ev.Woken(m.setup(max_parallel_tools=1)), 0),
    ],
)
def test_thinking_behind_what_changed_is_stale(event: ev.Event, mark: int) -> None:
    """Messages, the system prompt, tools; a change that is behind all thinking makes none stale."""
    assert step(m.state_after(*CLOSED), event).root.stale_thinking == mark


@pytest.mark.parametrize("events", [(), CLOSED, (THOUGHT,), (m.make_replied("pause_turn", m.text("so far")),)])
def test_the_count_of_messages_is_that_of_all_messages(events: tuple[ev.Event, ...]) -> None:
    loop = m.state_after(*events).root
    assert count_messages(loop) == len(list_messages(loop))


def test_what_is_stale_stays_so_and_what_comes_after_is_not() -> None:
    """Once some is, the model and what is wanted of thinking count, too; a change back mends nothing."""
    stale = m.go(m.state_after(*CLOSED), ev.Changed('{"system":"x"}'), ev.Changed("{}"))
    assert stale.root.stale_thinking == 3
    onward = m.go(stale, m.make_replied("end_turn", m.thinking("two"), m.text("so")))
    assert (onward.root.stale_thinking, len(onward.root.messages)) == (3, 4)
    assert step(onward, ev.Changed('{"model":"n"}')).root.stale_thinking == 4
    assert step(onward, ev.FollowedUp((m.user(),), replace_last=True)).root.stale_thinking == 0
    plain = m.go(m.state_after(), ev.Changed('{"system":"x"}'))
    assert plain.root.stale_thinking == 0


def test_the_reply_to_a_request_in_progress_is_stale_after_a_change() -> None:
    """It was asked for in other words; and so is what a limit left."""
    changed = m.go(m.state_after(*CLOSED), ev.Requested(), ev.Changed('{"system":"x"}'))
    assert changed.root.stale_thinking == 4
    again = m.go(changed, ev.RequestFailed(), ev.Requested())
    assert again.root.stale_thinking == 3  # the new request has the new words
    limited = m.state_after(THOUGHT, ev.Judged(seconds=9.0), ev.TurnEnded(), limits=Limits(timeout=5.0))
    assert step(limited, ev.Changed('{"system":"x"}')).root.stale_thinking == 2


Block = tuple[str, str]  # the role and the text of a block


def beginning(setup: Setup) -> tuple[Any, ...]:
    """What stands before the messages of a request."""
    params = decode(setup.params)
    return encode(params.get("system")), encode(params.get("tools")), [(each.name, each.digest) for each in setup.tools]


def blocks_of(text: str) -> list[Any]:
    content = decode(text)["content"]
    return [m.text(content)] if isinstance(content, str) else list(content)


def thoughts(messages: Sequence[str]) -> Iterator[tuple[str, list[Block]]]:
    """Every thinking block by its own words, with all blocks before it."""
    before: list[Block] = []
    for text in messages:
        role = decode(text)["role"]
        for block in blocks_of(text):
            if block["type"] == "thinking":
                yield str(block["thinking"]), list(before)
            before.append((role, encode(block)))


def as_sent(loop: Loop) -> list[str]:
    """The messages of a request, without the thinking that is stale."""
    sent = []
    for place, text in enumerate([*loop.messages, *loop.unjoined]):
        is_stale = place < loop.stale_thinking
        blocks = [block for block in blocks_of(text) if not (is_stale and block["type"] == "thinking")]
        sent.append(encode({"role": decode(text)["role"], "content": blocks}))
    return sent


@define
class Memory:
    """After which words the thinking of one loop was produced, by its own words."""

    asked: tuple[Any, list[Block]] = ((), [])
    born: dict[str, tuple[Any, list[Block]]] = field(factory=dict)
    sent: int = 0

    def look(self, event: ev.Event, loop: Loop) -> None:
        """Compare what a request carries with what was said when it was produced, and remember what is new."""
        start = beginning(loop.setup)
        if isinstance(event, ev.Requested) and isinstance(loop.phase, Requesting):
            messages = as_sent(loop)
            for words, prefix in thoughts(messages):
                self.sent += 1
                assert self.born[words] == (start, prefix), f"{words} goes out after other words"
            self.asked = start, [(decode(text)["role"], encode(each)) for text in messages for each in blocks_of(text)]
        if isinstance(event, ev.Replied):
            said: list[Block] = []
            for block in event.reply.blocks:
                if block["type"] == "thinking":
                    self.born[str(block["thinking"])] = self.asked[0], [*self.asked[1], *said]
                if block["type"] != "text" or block["text"].strip():  # blank text is not sent back
                    said.append(("assistant", encode(block)))


class Thoughtful(World):
    """A world in which the model thinks much, and in which earlier messages often change."""

    def some_blocks(self) -> Iterator[Any]:
        if not self.chance(4):
            yield m.thinking(self.make_new("hm"))
        yield from super().some_blocks()

    def choose(self) -> ev.Event:
        self.path = ()
        known = [kind for kind in CHANGES if kind in TRANSITIONS[type(self.state.root.phase)]]
        return self.make(self.rng.choice(known)) if known and self.chance(12) else super().choose()


CHANGES = (ev.Changed, ev.HistoryEdited, ev.Woken)


def remember(seed: int, steps: int, *, nested: bool) -> int:
    """Look at a whole life, at every loop of the tree for itself; how much thinking was sent."""
    world = Thoughtful(random.Random(seed), nested=nested, without=(ev.HistoryTaken,)).live(steps)
    memories: dict[Any, Memory] = {}
    for event, state in zip(world.journal, world.states, strict=True):
        for path, loop in state.loops.items():
            own = event if event.path == path else ev.Ticked()
            memories.setdefault(loop.setup.within, Memory()).look(own, loop)
    return sum(memory.sent for memory in memories.values())


@examples(40)
@given(st.integers(0, 2**32), st.integers(0, 120), st.booleans())
def test_thinking_goes_out_only_after_the_words_after_which_it_was_produced(
    seed: int, steps: int, nested: bool
) -> None:
    """Whatever happens: what is not stale has before it what it had then."""
    remember(seed, steps, nested=nested)


def test_thinking_does_go_out() -> None:
    """So the law above is tested on thinking that goes out."""
    assert sum(remember(seed, 120, nested=False) for seed in range(25)) > 100


# --- a history that the caller takes ---------------------------------------------------------------------------------

REPLY = m.make_replied("tool_use", m.call("a", "pure"), m.call("b", "pure"))
ASKED = m.make_said(m.call("a", "pure"), m.call("b", "pure"))
RAN = (ev.Started("a"), m.make_ended("a"), ev.Started("b"), m.make_ended("b"))


def statuses(state: State) -> dict[str, str]:
    round_ = state.root.round
    return {} if round_ is None else {call.id: str(call.status) for call in round_.calls}


@pytest.mark.parametrize("keeps", [False, True])
def test_what_waited_before_a_discarded_reply_stays_if_the_caller_kept_it(*, keeps: bool) -> None:
    """The paused reply before it, and not the one that is left out; with the container of its code."""
    pause = m.make_replied("pause_turn", m.server_call("s"), container={"id": "box"})
    for reply in (pause, REPLY):
        state = m.state_after(pause, ev.Continued(), reply, ev.HistoryTaken(keeps_unjoined=keeps))
        assert (m.phase(state), len(state.root.unjoined)) == ("Ready", keeps)
        assert state.root.container == ("box" if keeps else None)
    nothing = m.state_after(m.make_replied("pause_turn", m.text(" ")), ev.HistoryTaken(keeps_unjoined=True))
    assert (m.phase(nothing), nothing.root.unjoined) == ("Ready", ())


def test_a_round_of_the_callers_history_keeps_what_is_known_of_its_calls() -> None:
    """What ran stays run, another input is another call, and the container stays while anything is known."""
    box = m.make_replied("tool_use", m.call("a", "pure"), m.call("b", "pure"), container={"id": "box"})
    state = m.state_after(box, *RAN)
    changed = {**m.call("b", "pure"), "input": {"a": 2}}
    taken = step(state, ev.HistoryTaken(reply=m.make_said(m.call("a", "pure"), changed, m.call("c", "pure"))))
    assert statuses(taken) == {"a": "settled", "b": "proposed", "c": "proposed"}
    assert (m.phase(taken), taken.root.container) == ("Judging", "box")
    done = m.go(taken, ev.Started("b"), m.make_ended("b"), ev.Started("c"), m.make_ended("c"), ev.TurnEnded())
    assert m.results(m.history(done)[-1]) == {"a": "done", "b": "done", "c": "done"}
    assert step(state, ev.HistoryTaken(reply=m.make_said(m.call("z")))).root.container is None


@pytest.mark.parametrize(("more", "phase"), [((), "Running"), ((m.call("c", "pure"),), "Judging")])
def test_what_runs_goes_on_in_a_round_of_the_callers_history(more: tuple[Any, ...], phase: str) -> None:
    """Its end counts, and nothing starts beside it; the end of a call that the caller took out does not count."""
    state = m.state_after(REPLY, ev.Started("a"), ev.Started("b"))
    taken = step(state, ev.HistoryTaken(reply=m.make_said(m.call("a", "pure"), m.call("b", "pure"), *more)))
    assert m.phase(taken) == phase
    assert statuses(taken) == {"a": "running", "b": "running"} | ({"c": "proposed"} if more else {})
    late = [ev.Ended(name, Result(encode("late")), iteration=1, attempt=1) for name in "ab"]
    assert [the_call(m.go(taken, *late), name).result for name in "ab"] == [late[0].result, late[1].result]
    alone = step(state, ev.HistoryTaken(reply=m.make_said(m.call("z", "pure"))))
    assert m.go(alone, *late) == alone


def test_who_is_asked_stays_asked_in_the_callers_history() -> None:
    """A further call is judged once that is decided."""
    state = m.state_after(REPLY, m.asks("a"))
    taken = step(state, ev.HistoryTaken(reply=m.make_said(m.call("a", "pure"), m.call("c", "pure"))))
    assert (m.phase(taken), statuses(taken)) == ("decision_required", {"a": "waiting", "c": "proposed"})
    decided = m.go(taken, m.make_decided(a=m.APPROVE), ev.Continued())
    assert outstanding(decided) == (Judge(("c",)),)


def test_the_caller_is_not_asked_again_while_a_call_runs() -> None:
    """A further call was judged, and the same one waits as before: the loop goes on with what runs."""
    state = m.state_after(REPLY, m.asks("b"), ev.Continued(), ev.Started("a"), execution="ready")
    more = ev.HistoryTaken(reply=m.make_said(m.call("a", "pure"), m.call("b", "pure"), m.call("c", "pure")))
    judged = m.go(state, more, m.make_judged(c=m.DENY))
    assert (m.phase(judged), statuses(judged)) == ("Running", {"a": "running", "b": "waiting", "c": "settled"})


def test_what_is_known_of_the_old_history_is_not_said_of_the_callers() -> None:
    """It was replaced after so many requests; what compactions left says nothing any more."""
    state = m.state_after(*ROUND, ev.Continued(), ev.HistoryEdited((), "drop_rounds", after=9))
    taken = step(state, ev.HistoryTaken(SHORT)).root
    assert (state.root.compacted, taken.compacted, taken.edited_at) == ((("drop_rounds", 9),), (), 1)


def test_a_call_that_is_to_run_again_counts_then() -> None:
    """The late end of an earlier run is not a result any more."""
    state = m.state_after(REPLY, *RAN, ev.HistoryTaken(reply=ASKED, rerun=("b",)))
    assert (statuses(state), the_call(state, "b").run) == ({"a": "settled", "b": "cleared"}, 2)
    assert (the_call(state, "b").why, the_call(state, "b").reason, the_call(state, "b").result) == (None, None, None)
    for via, judged in ((None, True), ("handle", False)):  # those of old journals were not judged again
        again = ev.HistoryTaken(reply=ASKED, rerun=("b",), via=via)
        assert the_call(m.state_after(REPLY, *RAN, again), "b").judged is judged
    decision = the_call(m.state_after(REPLY, *RAN, ev.HistoryTaken(reply=ASKED, rerun=("b",), at=7.0)), "b").decision
    assert decision is not None
    assert (decision.kind, decision.at) == ("rerun", 7.0)
    late = ev.Ended("b", Result(encode("late")), iteration=1, attempt=1)
    assert the_call(step(state, late), "b").result is None
    done = m.go(state, ev.Judged(), ev.Started("b"), late, m.make_ended("b", "again"), ev.TurnEnded())
    assert m.results(m.history(done)[-1]) == {"a": "done", "b": "again"}


@pytest.mark.parametrize(
    ("events", "call_id", "why"),
    [
        ((), "a", "has no result yet"),
        ((), "z", "not a call of the open round"),
        ((m.make_judged(a=m.DENY, b=m.DENY),), "a", "never ran: its result is denied"),
    ],
)
def test_only_what_ran_is_run_again(events: tuple[ev.Event, ...], call_id: str, why: str) -> None:
    with pytest.raises(IllegalCommand, match=why):
        step(m.state_after(REPLY, *events), ev.HistoryTaken(reply=ASKED, rerun=(call_id,)))


@pytest.mark.parametrize(
    ("history", "ran", "counts"),
    [
        ((ASKED, m.user("results")), True, True),
        ((ASKED, m.user("results"), m.user("and more")), True, True),
        ((ASKED, m.user("results")), False, False),
        ((ASKED, m.user("results"), m.make_said(m.text("so"))), True, False),
        ((m.user("no, that"),), True, False),
        ((), True, False),
    ],
)
def test_a_round_that_the_caller_put_into_the_history_counts_where_repetitions_do(
    history: tuple[str, ...], *, ran: bool, counts: bool
) -> None:
    """Only if it is the last one there, and all its calls had their results; then the warning about it stays, too."""
    warned = LoopDetection(threshold=2, action="inject_warning")
    first = m.state_after(REPLY, *RAN, ev.TurnEnded(), ev.Continued(), REPLY, m.make_judged(), loop_detection=warned)
    assert first.root.queued
    state = m.go(first, *(RAN if ran else ()), ev.HistoryTaken((Splice(3, 3, history),)))
    assert state.root.repetition.count == 1 + counts
    assert any("2 times" in str(message["content"]) for message in m.history(state)) is counts


@examples(20)
@given(st.integers(0, 2**32))
def test_what_is_still_in_the_callers_history_is_not_run_twice(seed: int) -> None:
    """A settled call stays so, with the same result, until the caller wants it run again."""
    world = World(random.Random(seed)).live(90)
    for event, (before, after) in zip(world.journal[1:], pairwise(world.states), strict=True):
        if not isinstance(event, ev.HistoryTaken) or before.root.round is None or after.root.round is None:
            continue
        for call in before.root.round.calls:
            now = after.root.round.find(call.id)
            if now is not None and (now.name, now.input) == (call.name, call.input):
                assert now.attempts == call.attempts
                assert call.status is not Status.RUNNING or now.status is Status.RUNNING
                assert call.result is None or now.result == call.result or call.id in event.rerun
