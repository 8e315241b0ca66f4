"""A chat service whose requests drive: an answer streams to the request that asked for it, without a worker.

    uvicorn --app-dir docs/examples chat_stream:app

It is chat_service.py with other streams, and takes the rest from there. A worker of the same store may run beside it.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Annotated

from chat_service import CLIENT, INBOX, STORE, Chat, begin, decide, refund, refuse, say
from fastapi import Depends, FastAPI
from fastapi.sse import EventSourceResponse, ServerSentEvent

from toolloop import AsyncToolLoopHandle
from toolloop.errors import CallerError, Conflict, LoopNotFound
from toolloop.events import RequestStarted, TextDelta
from toolloop.types import AsyncTurnStream

app = FastAPI(exception_handlers=dict.fromkeys((CallerError, Conflict, LoopNotFound), refuse))
app.post("/chats", status_code=201)(begin)
app.post("/chats/{chat}/words", status_code=202)(say)
app.post("/chats/{chat}/calls/{call}", status_code=202)(decide)


async def driving(chat: Chat) -> AsyncGenerator[AsyncTurnStream]:
    """Enter the stream before the first byte is sent, so that a refusal is a status: 404, 409 or 422."""
    async with (
        AsyncToolLoopHandle.open(STORE, chat, CLIENT, tools=[refund]) as handle,
        handle.stream() as stream,  # takes the lease, or raises
    ):
        yield stream


async def words(stream: AsyncTurnStream) -> AsyncGenerator[ServerSentEvent]:
    """Drive the chat until a person is needed, and show the text so far of each answer."""
    text = ""
    async for event in stream:
        if isinstance(event, RequestStarted):
            text = ""
        elif isinstance(event, TextDelta):
            text += event.text
            yield ServerSentEvent(event="words", data=text)


@app.post("/chats/{chat}/answer", response_class=EventSourceResponse)
async def answer(chat: Chat, stream: Annotated[AsyncTurnStream, Depends(driving)]) -> AsyncGenerator[ServerSentEvent]:
    """Let the agent go on, and stream its answer to this request. At the end comes the chat as it is then."""
    async for event in words(stream):
        yield event
    yield ServerSentEvent(data=await INBOX.show(chat))


async def closing() -> AsyncGenerator[AsyncExitStack]:
    """Close with the request what a stream has entered: if its reader leaves, FastAPI may leave it to the collector."""
    async with AsyncExitStack() as stack:
        yield stack


@app.get("/chats/{chat}/events", response_class=EventSourceResponse)
async def events(chat: Chat, stack: Annotated[AsyncExitStack, Depends(closing)]) -> AsyncGenerator[ServerSentEvent]:
    """Show the chat now and after each change, and drive it while no other request or worker does."""
    shown = None
    async for change in INBOX.watch(chat):
        if (now := (change.rev, change.changed)) != shown:
            shown = now
            yield ServerSentEvent(data=await INBOX.show(chat))
        if change.text is not None:  # a worker drives
            yield ServerSentEvent(event="words", data=change.text)
        if change.status in ("runnable", "running") and not change.driven:
            with suppress(Conflict):  # another request or a worker was faster; its changes are shown
                async with stack:
                    stream = await stack.enter_async_context(asynccontextmanager(driving)(chat))
                    async for event in words(stream):
                        yield event
