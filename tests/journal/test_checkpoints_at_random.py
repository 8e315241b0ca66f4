"""A checkpoint is the state: at each prefix of a random journal, all that can follow has the same result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given, strategies as st

from tests.kit.effort import examples
from tests.kit.machine.worlds import World, lives
from toolloop.errors import ToolLoopError
from toolloop.machine.queries import outstanding
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import State
from toolloop.machine.tree import step
from toolloop.stores import Revision, dump
from toolloop.stores.checkpoints import Checkpoint, read_checkpoint, write_checkpoint

NEXT = 10


def read_again(state: State) -> State:
    """The state as a process has it that reads its checkpoint."""
    loop_id = state.root.setup.loop_id
    return read_checkpoint(loop_id, write_checkpoint(Checkpoint(state, Revision(1, "ab"), "first"))).state


def outcome(act: Callable[[], State]) -> object:
    """The state, or the refusal."""
    try:
        return act()
    except ToolLoopError as error:
        return type(error), str(error), vars(error)


def expect_same_from(state: State, read: State, events: Sequence[ev.Event]) -> None:
    """Both have the same states after each of these events, and refuse the same ones."""
    for event in events:
        after, after_read = outcome(lambda: step(state, event)), outcome(lambda: step(read, event))  # noqa: B023 - called at once
        assert after == after_read
        if isinstance(after, State) and isinstance(after_read, State):
            state, read = after, after_read
            assert outstanding(state) == outstanding(read)


@examples(15)
@given(lives, lives, st.integers(0, 30))
def test_a_checkpoint_and_the_rest_lead_where_the_whole_journal_leads(world: World, other: World, at: int) -> None:
    """The next events of the journal, and those of another one, of which most are refused."""
    foreign = other.journal[1:][at % len(other.journal) :][:NEXT]
    for number, state in enumerate(world.states):
        read = read_again(state)
        assert read == state
        assert dump(read) == dump(state)
        rest = world.journal[number + 1 :]
        expect_same_from(state, read, rest[:NEXT])
        expect_same_from(state, read, foreign)
        expect_same_from(state, read, rest[1::2][:NEXT])


@examples(5)
@given(lives)
def test_the_rest_of_a_journal_leads_to_its_end(world: World) -> None:
    """From the checkpoint of any prefix."""
    for number, state in enumerate(world.states):
        state = read_again(state)  # noqa: PLW2901 - it goes on
        for event in world.journal[number + 1 :]:
            state = step(state, event)  # noqa: PLW2901 - likewise
        assert state == world.states[-1]
