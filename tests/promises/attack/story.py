"""The loops that are attacked: drawn from a seed, so that each process that opens one knows how it goes on."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

import anthropic
import anyio
import anyio.lowlevel
from attrs import define, field

from tests.promises.attack.ledger import Ledger, result_of
from toolloop import (
    Answer,
    Approve,
    AsyncToolLoopHandle,
    Completed,
    Deny,
    LoopConfig,
    LoopContext,
    Rerun,
    ToolContext,
    ToolLoopHandle,
    Worker,
    Yielded,
    sub_loop,
    tool,
)
from toolloop.compaction import DropRounds
from toolloop.errors import ToolLoopError
from toolloop.stores import Store
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply

KINDS = ("sync", "asyncio", "trio")
BARE = {"model": "claude-opus-5-5", "max_tokens": 256}
LOOP_ID = "loop"
_CALL = re.compile(r"(?:(.*)-)?r(\d+)_\d+")  # of which call's loop, and which round


@define
class Story:
    """A loop, and what happens in it.

    Attributes:
        seed: what is drawn from.
        ledger: what really happens is written there.
        is_small: one round with an approval and two other calls, and nothing inside.
        deciding: draws the decisions; another one in each process.
        watching: whether to write down what waits: only who is alone knows that it still does.
        config: more for `LoopConfig`.
        url: a fake API, to which requests go over HTTP and with message threads. None: `answer` is called.

    """

    seed: int
    ledger: Ledger
    is_small: bool = False
    deciding: Random = field(factory=Random)
    watching: bool = True
    config: Mapping[str, Any] = field(factory=dict)
    url: str | None = None

    def answer(self, request: dict[str, Any]) -> Any:
        """Return what the model says next, by the calls that it made; and write down what it was sent."""
        messages = request["messages"]
        self.sent(messages)
        task, calls = str(messages[0]["content"]), blocks_of(messages, "tool_use", "id")
        found = [int(match[2]) for match in map(_CALL.fullmatch, calls) if match]
        number = max(found, default=0) + 1
        inside = task.startswith("part ")
        chance = Random(f"{self.seed} {task} {number}")
        if number > (1 if inside or self.is_small else 1 + self.seed % 3):
            return reply("done")
        names = ["look", "pay", "send", "log"] + ["part"] * (not inside)
        drawn = ["send", "log", "look"] if self.is_small else chance.choices(names, k=chance.randint(1, 3))
        prefix = f"{task[5:]}-" if inside else ""
        ids = [f"{prefix}r{number}_{at}" for at in range(len(drawn))]
        return reply(
            calls=[
                call(name, {"prompt": f"part {call_id}"} if name == "part" else {"what": call_id}, id=call_id)
                for name, call_id in zip(drawn, ids, strict=True)
            ]
        )

    async def answer_later(self, request: dict[str, Any]) -> Any:
        """Return the same, after a step of the event loop."""
        await anyio.lowlevel.checkpoint()
        return self.answer(request)

    def sent(self, messages: Any) -> None:
        """Write down the calls and results of a history."""
        results = blocks_of(messages, "tool_result", "tool_use_id", "content")
        self.ledger.write("sent", calls=blocks_of(messages, "tool_use", "id"), results=results)

    def decisions(self, waiting: Iterable[Any]) -> dict[Any, Any]:
        """Decide the calls that wait. A run that is allowed again is written down before it is."""
        decided: dict[Any, Any] = {}
        for each in waiting:
            if self.watching:
                self.ledger.write("asked", call=each.id, why=each.why)
            if each.why == "approval":
                decided[each] = self.deciding.choices([Approve(), Deny("no"), Answer("by hand")], [6, 3, 1])[0]
            else:
                decided[each] = self.deciding.choice([Rerun(), Deny("who knows"), Answer("it happened")])
            if isinstance(decided[each], Rerun):
                self.ledger.write("rerun", call=each.id)
        return decided

    def note(self, decided: Mapping[Any, Any]) -> None:
        """Write down the decisions that were accepted."""
        for each, decision in decided.items():
            self.ledger.write("decided", call=each.id, why=each.why, kind=type(decision).__name__.lower())

    def parts(self, kind: str) -> dict[str, Any]:
        """Return what a handle of this kind is given beside the provider and the store."""
        settings: dict[str, Any] = {
            "max_parallel_tools": 1 + 3 * (self.seed % 2),
            "execution": "ready" if self.seed % 5 == 0 else "barrier",
            "compaction": DropRounds(1) if self.seed % 4 == 0 else None,
            "threads": self.url is not None,
        }
        return {
            "params": {**BARE, "messages": [{"role": "user", "content": "go"}]},
            "tools": TOOLS[kind == "sync"],
            "context": LoopContext(state=self.ledger),
            "config": LoopConfig(**{**settings, **self.config}),
        }

    def provider(self, kind: str) -> Any:
        """Return what answers requests."""
        if self.url is not None:
            return _client(kind, self.url)
        return ScriptedProvider(self.answer) if kind == "sync" else AsyncScriptedProvider(self.answer_later)

    def worker(self, store: Store, provider: Any = None, **more: Any) -> Worker:
        """Return a worker that can drive the loop. `provider`: instead of the model of the story."""
        parts = self.parts("sync")
        return Worker(store, provider or self.provider("sync"), parts["tools"], context=parts["context"], **more)

    def open(self, kind: str, store: Store, loop_id: str = LOOP_ID, **more: Any) -> Any:
        """Open the loop in a store, or create it there."""
        face = ToolLoopHandle if kind == "sync" else AsyncToolLoopHandle
        return face.open(store, loop_id, self.provider(kind), **{**self.parts(kind), **more})

    def run(self, handle: ToolLoopHandle) -> str:
        """Drive to the end, and say which it was."""

        def ask(turn: Yielded) -> None:
            handle.decide(decided := self.decisions(turn.pending))
            self.note(decided)

        return self._ended(handle, handle.run(ask))

    async def arun(self, handle: AsyncToolLoopHandle) -> str:
        """Do the same with an async handle."""

        async def ask(turn: Yielded) -> None:
            handle.decide(decided := self.decisions(turn.pending))
            await handle.flush()
            self.note(decided)

        return self._ended(handle, await handle.run(ask))

    def _ended(self, handle: Any, result: Any) -> str:
        if isinstance(result, Completed):
            self.sent(handle.messages)
            return "done"
        return type(getattr(result, "error", result)).__name__

    def drive(self, kind: str, store: Store, loop_id: str = LOOP_ID, **more: Any) -> str:
        """Open the loop and drive it to its end: `done`, or the name of the error that stood in the way."""
        try:
            if kind == "sync":
                with self.open(kind, store, loop_id, **more) as handle:
                    return self.run(handle)

            async def main() -> str:
                async with self.open(kind, store, loop_id, **more) as handle:
                    return await self.arun(handle)

            return str(anyio.run(main, backend=kind))
        except ToolLoopError as error:
            return type(error).__name__


def _client(kind: str, url: str) -> Any:
    settings: dict[str, Any] = {"api_key": "test-key", "base_url": url, "max_retries": 0}
    if kind == "sync":
        http = anthropic.DefaultHttpxClient(trust_env=False, verify=False)
        return anthropic.Anthropic(**settings, http_client=http)
    http_too = anthropic.DefaultAsyncHttpxClient(trust_env=False, verify=False)
    return anthropic.AsyncAnthropic(**settings, http_client=http_too)


def blocks_of(messages: Any, kind: str, *members: str) -> list[Any]:
    """Return a member of each block of a kind as a text; of several members, lists."""
    blocks = [block for message in messages for block in message["content"] if isinstance(block, dict)]
    found = [[str(block.get(member)) for member in members] for block in blocks if block.get("type") == kind]
    return found if len(members) > 1 else [value for (value,) in found]


def _begin(context: ToolContext, effect: str) -> None:
    ends = getattr(context, "lease_ends_at", None)  # an earlier version has none
    if context.state.is_fenced and ends is not None and ends.timestamp() <= time.time():
        context.state.write("fenced", call=context.call_id)
        raise TimeoutError("the lease of the driver is over")
    context.state.write("start", call=context.call_id, key=context.idempotency_key, effect=effect)


def _end(context: ToolContext) -> str:
    result = result_of(context.call_id)
    context.state.write("end", call=context.call_id, result=result)
    return result


def _plain(name: str, effect: Any, **more: Any) -> Any:
    def run(what: str, context: ToolContext) -> str:
        _begin(context, effect)
        hashlib.pbkdf2_hmac("sha256", b"", b"", 1000)  # it takes its time
        return _end(context)

    return tool(name=name, description="Do something.", effect=effect, **more)(run)


def _async(name: str, effect: Any, **more: Any) -> Any:
    async def run(what: str, context: ToolContext) -> str:
        await anyio.lowlevel.checkpoint()
        _begin(context, effect)
        await anyio.lowlevel.checkpoint()
        return _end(context)

    return tool(name=name, description="Do something.", effect=effect, **more)(run)


def _tools(*makers: Callable[..., Any]) -> list[Any]:
    approved, plain = makers
    tools = [
        approved("look", "pure"),
        plain("pay", "keyed"),
        approved("send", "once", needs_approval=True),
        plain("log", "once"),
    ]
    return [*tools, sub_loop("part", "Do a part.", params=BARE, tools=tools)]


TOOLS = {True: _tools(_plain, _plain), False: _tools(_async, _plain)}
