"""Pauses that go out only with their thinking: edits and other parameters before them are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.each import each
from tests.loop.compaction_stories import Reader, Reading, book, read, reading, thoughts_in
from tests.loop.support import refused, user
from tests.loop.talking import either_driver, play
from toolloop import Continue, Stop
from toolloop.errors import IllegalCommand
from toolloop.terminations import PauseLimit, StopCondition
from toolloop.testing import reply

OTHER = user("Read another book.")
PAUSE = reply("Hm.", thinking="a long thought", stop_reason="pause_turn")


def edit(handle: Any) -> None:
    handle.messages_mut()[0] = OTHER


def pausing(*then: Any) -> Reader:
    """Two pages, then a pause that goes out only with its thinking."""
    return Reader(0, first=[read(1), read(2), PAUSE, *then])


async def to_the_pause(at: Reading) -> Any:
    turn = await at.turn()
    while turn.reason != "paused":
        turn.continue_loop()
        turn = await at.turn()
    return turn


@either_driver
def test_an_edit_before_a_pause_that_needs_its_thinking_is_refused(driver: str) -> None:
    """Nothing is sent; the list can be put back, and the loop goes on."""

    async def story() -> None:
        async with reading(driver, pausing()) as at:
            turn = await to_the_pause(at)
            edit(at.handle)
            with refused(at.handle, IllegalCommand, "pauses", "resume(Stop())"):
                turn.continue_loop()
            assert len(at.bodies()) == 3
            at.handle.messages_mut()[0] = user("Read the book.")
            turn.continue_loop()
            assert (await at.to_the_end()).text == "done"
            assert thoughts_in(at.sent()) == ["thought 1", "thought 2", "a long thought"]

    play(driver, story)


OTHERWISE: dict[str, dict[str, Any]] = {
    "system": {"system": "Be brief."},
    "tools": {"tools": [{"name": "ask", "input_schema": {"type": "object"}}]},
}


@each("what", OTHERWISE)
def test_other_words_before_such_a_pause_are_refused(what: str) -> None:
    """By `update_params`, at once; what stands before no thinking may change."""

    async def story() -> None:
        async with reading("sync", pausing()) as at:
            turn = await to_the_pause(at)
            with refused(at.handle, IllegalCommand, "pauses", "resume(Stop())"):
                at.handle.update_params(**OTHERWISE[what])
            assert len(at.bodies()) == 3
            at.handle.update_params(max_tokens=300)
            turn.continue_loop()
            assert (await at.to_the_end()).text == "done"
            assert at.bodies()[-1]["max_tokens"] == 300

    play("sync", story)


STOPS: dict[str, Callable[[Any, Any], object]] = {
    "stop": lambda _handle, turn: turn.stop("enough"),
    "resume": lambda handle, _turn: handle.resume(Stop("enough")),
}


@each("how", STOPS)
def test_stop_takes_the_edit_over(how: str) -> None:
    """The paused reply goes with it, so there is nothing that hangs on anything."""

    async def story() -> None:
        async with reading("sync", pausing(reply("done"))) as at:
            turn = await to_the_pause(at)
            edit(at.handle)
            STOPS[how](at.handle, turn)
            assert (await at.done()).termination == StopCondition("enough")
            assert at.handle.messages[0] == OTHER
            assert "Hm." not in str(at.handle.messages)
            at.handle.follow_up([user("Go on.")])
            assert (await at.done()).text == "done"
            assert at.sent()[0] == OTHER

    play("sync", story)


def test_words_that_were_accepted_before_such_a_pause() -> None:
    """A drift is accepted before anybody can know: the next turn says so, sends nothing, and `Stop` ends the loop."""

    async def story() -> None:
        async with reading("sync", pausing(reply("done"))) as at:
            await to_the_pause(at)
            asked = {name: value for name, value in book(system="Be brief.").items() if name != "messages"}
            woken = at.restored_with(at.handle.snapshot(), None, params=asked, on_drift="accept")
            woken.handle.resume(Continue())
            with pytest.raises(IllegalCommand, match="pauses"):
                await woken.next()
            assert len(at.bodies()) == 3
            woken.handle.resume(Stop())
            assert (await woken.done()).termination == StopCondition(None)
            woken.handle.follow_up([user("Go on.")])
            assert (await woken.done()).text == "done"
            assert woken.bodies()[-1]["system"] == "Be brief."

    play("sync", story)


def test_such_a_pause_after_the_end_of_a_limit() -> None:
    """Other parameters after the end, then the limit is lifted: it is said before anything is sent."""

    async def story() -> None:
        async with reading("sync", pausing(reply("done")), max_pauses=0) as at:
            (await to_the_pause(at)).continue_loop()
            assert isinstance((await at.done()).termination, PauseLimit)
            at.handle.update_params(system="Be brief.")
            at.handle.extend(max_pauses=9)
            with pytest.raises(IllegalCommand, match="pauses"):
                await at.next()
            assert len(at.bodies()) == 3
            at.handle.resume(Stop())
            assert (await at.done()).termination == StopCondition(None)
            at.handle.follow_up([user("Go on.")])
            assert (await at.done()).text == "done"

    play("sync", story)
