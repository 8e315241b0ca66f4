"""One session of an editor: a loop, and the prompts that drive it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from textwrap import shorten

from acp import RequestError
from acp.core import Connection

from toolloop._handles.asynchronous import AsyncToolLoopHandle
from toolloop._interface.results import Completed, Error
from toolloop.acp.loops import TITLE, AcpLoops
from toolloop.acp.questions import Questions, Turn
from toolloop.acp.screen import Screen
from toolloop.errors import Conflict, NotAllowed, ToolLoopError
from toolloop.inbox.transcript import visible
from toolloop.machine.values.jsontext import JSON
from toolloop.terminations import LIMITS

_REASONS = {"complete": "end_turn", "refused": "refusal", "truncated": "max_tokens"}
_LONGEST = 80  # characters of a title


class Session:
    """A loop of the store, as an editor drives it."""

    def __init__(self, loops: AcpLoops, folder: str, handle: AsyncToolLoopHandle, editor: Connection) -> None:
        """Keep the parts. `folder`: the folder that the editor works in."""
        self.id: str = handle.loop_id
        self._handle, self._inbox = handle, loops.inbox()
        self._screen = Screen(loops, folder, handle, editor)
        self._questions = Questions(loops, handle, self._inbox, self._screen, editor)
        self._turns: set[Turn] = set()
        self._driving = asyncio.Lock()

    async def drive(self, content: list[JSON] | None = None) -> str:
        """Say something, drive the loop as far as it goes, and return the stop reason of the protocol.

        Raises:
            ToolLoopError: the loop cannot take it, or its store failed.
            RequestError: a model request failed.

        """
        self._leave_questions()
        turn = Turn()
        self._turns.add(turn)  # before anything is awaited, so that a cancellation right behind it finds it
        try:
            async with self._driving:
                if content is not None:
                    await self._name(content)
                    await self._inbox.say(self.id, [{"role": "user", "content": content}])
                return await self._run(turn)
        finally:
            self._turns.discard(turn)

    def _leave_questions(self) -> None:
        """Give up the questions of turns under way. They are asked again, after what comes now."""
        for turn in self._turns:
            turn.leave()

    async def _name(self, content: list[JSON]) -> None:
        """Give the session a title, at its first prompt."""
        if not self._handle.messages:
            text = " ".join(block.get("text", "") for block in content)
            with suppress(NotAllowed):
                await self._inbox.set_metadata(
                    self.id, **{TITLE: shorten(visible(text), _LONGEST, placeholder="…") or None}
                )

    async def wake(self) -> None:
        """Continue what was under way when the loop was last driven: ask again, and drive it."""
        if self._handle.pending or self._handle.status in ("runnable", "running", "stopping"):
            try:
                await self.drive()
            except (RequestError, ToolLoopError) as error:
                await self._screen.note(f"It could not continue: {error}. Send a message to try again.")

    async def replay(self) -> None:
        """Show the whole conversation, once it rests: what a turn shows meanwhile would be in it twice."""
        self._leave_questions()
        async with self._driving:
            await self._handle.flush()
            await self._screen.replay((await self._inbox.show(self.id))["messages"], self._handle.pending)

    def cancel(self) -> None:
        """Stop the turn that is under way, and those that wait for it."""
        for turn in self._turns:
            turn.cancelled.set()
            turn.leave()

    async def close(self) -> None:
        """Leave the loop as it is."""
        await self._handle.aclose()

    async def _run(self, turn: Turn) -> str:
        going, stop = asyncio.create_task(self._go_on(turn)), asyncio.create_task(turn.cancelled.wait())
        try:
            await asyncio.wait({going, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not turn.cancelled.is_set():
                return await going
            try:
                await self._inbox.stop(self.id, "It was cancelled in the editor.")
            except NotAllowed:
                going.cancel()  # the loop stays as it is
            await asyncio.wait({going})
            await self._handle.flush()
            await self._screen.show_ends()
            return "cancelled"
        finally:
            going.cancel()
            stop.cancel()
            await asyncio.gather(going, stop, return_exceptions=True)

    async def _go_on(self, turn: Turn) -> str:
        await self._handle.flush()
        while True:
            try:
                async with self._handle.stream() as stream:
                    async for event in stream:
                        await self._screen.show(event)
            except Conflict:
                await self._screen.note("Another process continues this session. Load it again to see what it did.")
                await self._inbox.wait(self.id)
                return "end_turn"
            match stream.turn:
                case Completed(termination=end):
                    await self._screen.show_ends()
                    if end.kind not in _REASONS and not turn.cancelled.is_set():
                        await self._screen.note(f"The turn ended: {end}.")
                    return _REASONS.get(end.kind, "max_turn_requests" if isinstance(end, LIMITS) else "end_turn")
                case Error(error=error):
                    raise RequestError(-32603, str(error))
            await self._questions.ask(turn)
            if self._handle.pending:
                if not turn.is_left:
                    await self._screen.note(self._questions.describe_rest())
                return "end_turn"
