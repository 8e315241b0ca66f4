"""One session of an editor: a loop, and the prompts that drive it."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from textwrap import shorten
from typing import TypeVar

from acp import RequestError
from acp.core import Connection

from toolloop import AsyncToolLoopHandle, Completed, Error
from toolloop.acp.loops import TITLE, AcpLoops
from toolloop.acp.questions import Questions, Turn
from toolloop.acp.screen import Screen
from toolloop.errors import Conflict, NotAllowed, StoreError, ToolLoopError
from toolloop.inbox import escape_hidden, retry_store_errors
from toolloop.terminations import LIMITS
from toolloop.types import JSON

LOG = logging.getLogger("toolloop.acp")
T = TypeVar("T")
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
        self._works: set[asyncio.Task[str]] = set()
        self._driving = asyncio.Lock()
        self._is_stuck = asyncio.Event()  # set while the store fails, also for the turns that wait for one at work

    async def drive(self, content: list[JSON] | None = None) -> str:
        """Say something, drive the loop as far as it goes, and return the stop reason of the protocol.

        A store that fails is asked again a second later: what was said counts once, and what was done is kept. A turn
        that is cancelled meanwhile ends, and is stopped when the store works again: the next turn waits for that.

        Raises:
            ToolLoopError: the loop cannot take it.
            RequestError: a model request failed.

        """
        self._leave_questions()
        turn, key = Turn(), uuid.uuid4().hex
        self._turns.add(turn)  # before anything is awaited, so that a cancellation right behind it finds it
        work = asyncio.create_task(self._work(turn, content, key))
        given_up = asyncio.create_task(turn.wait_until_given_up(self._is_stuck))
        self._works.add(work)
        work.add_done_callback(self._works.discard)
        try:
            await asyncio.wait({work, given_up}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            work.cancel()
            raise
        finally:
            given_up.cancel()
        if work.done():
            return work.result()
        work.add_done_callback(self._log_failure)  # its prompt has its answer
        await self._screen.note("The store cannot be reached. This turn is stopped once it works again.")
        return "cancelled"

    def _log_failure(self, work: asyncio.Task[str]) -> None:
        if not work.cancelled() and (error := work.exception()) is not None:
            LOG.warning("a turn that was cancelled failed later: %s", error, extra={"loop_id": self.id})

    async def _work(self, turn: Turn, content: list[JSON] | None, key: str) -> str:
        try:
            async with self._driving:
                return await self._retry(partial(self._run, turn, content, key))
        finally:
            turn.leave()
            self._turns.discard(turn)

    async def _retry(self, work: Callable[[], Awaitable[T]]) -> T:
        """Call a function until the store does not fail. A turn that is cancelled meanwhile does not wait for that."""

        async def call() -> T:
            self._is_stuck.clear()
            try:
                return await work()
            except StoreError:
                self._is_stuck.set()
                raise

        return await retry_store_errors(self.id, call)

    def _leave_questions(self) -> None:
        """Give up the questions of turns under way. They are asked again, after what comes now."""
        for turn in self._turns:
            turn.leave()

    async def _say(self, content: list[JSON], key: str) -> None:
        """Say something, once for each key. The first text gives the session its title."""
        if not self._handle.messages:
            text = escape_hidden(" ".join(block.get("text", "") for block in content))
            with suppress(NotAllowed):
                title = shorten(text, _LONGEST, placeholder="…") or None
                await self._inbox.set_metadata(self.id, **{TITLE: title})
        await self._inbox.say(self.id, [{"role": "user", "content": content}], key=key)

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
            if not turn.cancelled.done():
                turn.cancelled.set_result(None)
            turn.leave()

    async def close(self) -> None:
        """Leave the loop as it is."""
        for work in self._works:
            work.cancel()
        await asyncio.gather(*self._works, return_exceptions=True)
        await self._handle.aclose()

    async def _run(self, turn: Turn, content: list[JSON] | None, key: str) -> str:
        if content is not None:
            await self._say(content, key)
        going = asyncio.create_task(self._go_on(turn))
        try:
            await asyncio.wait({going, turn.cancelled}, return_when=asyncio.FIRST_COMPLETED)
            if not turn.cancelled.done():
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
            await asyncio.gather(going, return_exceptions=True)

    async def _go_on(self, turn: Turn) -> str:
        await self._handle.flush()
        while not turn.cancelled.done():
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
                    if end.kind not in _REASONS and not turn.cancelled.done():
                        await self._screen.note(f"The turn ended: {end}.")
                    return _REASONS.get(end.kind, "max_turn_requests" if isinstance(end, LIMITS) else "end_turn")
                case Error(error=error):
                    raise RequestError(-32603, str(error))
            await self._retry(partial(self._questions.ask, turn))
            if self._handle.pending:
                if not turn.is_left:
                    await self._questions.show_rest()
                return "end_turn"
        return "cancelled"
