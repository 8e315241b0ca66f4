"""The methods of the protocol, and the sessions that are open."""

from __future__ import annotations

import asyncio
import html
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

from acp import PROTOCOL_VERSION, RequestError, schema
from acp.core import Connection
from pydantic import BaseModel, ValidationError

from toolloop import AsyncToolLoopHandle
from toolloop.acp.loops import FOLDER, ROOT, TITLE, AcpSession, Factory
from toolloop.acp.session import Session
from toolloop.acp.transport import LineTransport
from toolloop.errors import LoopNotFound, ToolLoopError
from toolloop.types import JSON

_PAGE = 50  # sessions of a list
_FAILED, _UNKNOWN, _BAD = -32603, -32002, -32602
_CAN = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "embeddedContext": True},
    "sessionCapabilities": {"list": {}, "resume": {}},
}


class Agent:
    """Answers an editor."""

    def __init__(self, factory: Factory, transport: LineTransport) -> None:
        """Start without sessions. `factory`: see `serve`."""
        self.connection: Connection = Connection(self.answer, transport, listening=False)
        self._factory = factory
        self._sessions: dict[str, Session] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening = asyncio.Lock()

    async def answer(self, method: str, params: JSON, is_notification: bool) -> JSON:  # noqa: FBT001 - of the SDK
        """Answer a message of the editor.

        Raises:
            RequestError: the method or its parameters are unknown, or it failed.

        """
        if method not in _METHODS:
            if is_notification:
                return None
            raise RequestError.method_not_found(method)
        model, answer = _METHODS[method]
        try:
            return await answer(self, model.model_validate(params))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise RequestError(_BAD, f"{method}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
        except LoopNotFound as error:
            raise RequestError(_UNKNOWN, str(error)) from error
        except (ToolLoopError, ValueError, TypeError) as error:
            raise RequestError(_FAILED, str(error)) from error

    async def close(self) -> None:
        """Leave all sessions as they are."""
        await self.connection.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for session in self._sessions.values():
            with suppress(ToolLoopError):  # what is not stored is recorded again by the next one
                await session.close()

    async def initialize(self, _: schema.InitializeRequest) -> JSON:
        """Say what this agent can do. It knows one version of the protocol."""
        about = {"name": "toolloop", "title": "toolloop", "version": version("toolloop")}
        return {"protocolVersion": PROTOCOL_VERSION, "agentCapabilities": _CAN, "agentInfo": about, "authMethods": []}

    async def new(self, asked: schema.NewSessionRequest) -> JSON:
        """Begin a session, as a new loop."""
        return {"sessionId": (await self._open(f"acp-{uuid.uuid4().hex}", asked.cwd, is_new=True)).id}

    async def load(self, asked: schema.LoadSessionRequest | schema.ResumeSessionRequest) -> JSON:
        """Open a session, show it unless it is only resumed, and continue what was under way."""
        session = self._sessions.get(asked.session_id) or await self._open(asked.session_id, asked.cwd)
        if isinstance(asked, schema.LoadSessionRequest):
            await session.replay()
        task = asyncio.create_task(session.wake())  # it begins after the answer has been sent
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return {}

    async def list(self, asked: schema.ListSessionsRequest) -> JSON:
        """List the sessions of this person, newest first."""
        loops = self._factory(AcpSession(_checked(asked.cwd or str(Path.cwd()))))
        metadata = loops.mark(**({FOLDER: asked.cwd} if asked.cwd else {}))
        find = partial(loops.store.list, metadata=metadata, limit=_PAGE, before=asked.cursor)
        rows = await asyncio.to_thread(find)
        found = [
            {
                "sessionId": row.loop_id,
                "cwd": row.metadata.get(FOLDER, ROOT),
                "title": row.metadata.get(TITLE, "New session"),
                "updatedAt": datetime.fromtimestamp(row.head.changed, UTC).isoformat(),
            }
            for row in rows
        ]
        return {"sessions": found, **({"nextCursor": rows[-1].cursor} if len(rows) == _PAGE else {})}

    async def prompt(self, asked: schema.PromptRequest) -> JSON:
        """Take a prompt of a session that is open."""
        content = [_read_block(part) for part in asked.prompt]
        return {"stopReason": await self._find(asked.session_id).drive(content)}

    async def cancel(self, asked: schema.CancelNotification) -> JSON:
        """Stop what is under way in a session."""
        self._find(asked.session_id).cancel()

    def _find(self, session_id: str) -> Session:
        if session_id not in self._sessions:
            raise RequestError(_UNKNOWN, f"the session {session_id!r} is not open: load it first")
        return self._sessions[session_id]

    async def _open(self, session_id: str, folder: str, *, is_new: bool = False) -> Session:
        loops = self._factory(AcpSession(_checked(folder), session_id))
        if not is_new:
            known = (await loops.inbox().show(session_id))["metadata"].get(FOLDER, ROOT)
            if known != folder:
                raise RequestError(_BAD, f"cwd: the session {session_id} belongs to the folder {known}")
        parts: dict[str, Any] = {"tools": loops.tools, "config": loops.config, "context": loops.context}
        if is_new:
            parts |= {"params": {**loops.params, "messages": []}, "metadata": loops.mark(**{FOLDER: folder})}
        async with self._opening:  # two loads at once open one handle
            if session_id not in self._sessions:
                handle = await AsyncToolLoopHandle.open(loops.store, session_id, loops.provider, **parts)
                self._sessions[session_id] = Session(loops, folder, handle, self.connection)
        return self._sessions[session_id]


_METHODS: Mapping[str, tuple[type[BaseModel], Callable[[Agent, Any], Awaitable[JSON]]]] = {
    "initialize": (schema.InitializeRequest, Agent.initialize),
    "session/new": (schema.NewSessionRequest, Agent.new),
    "session/load": (schema.LoadSessionRequest, Agent.load),
    "session/resume": (schema.ResumeSessionRequest, Agent.load),
    "session/list": (schema.ListSessionsRequest, Agent.list),
    "session/prompt": (schema.PromptRequest, Agent.prompt),
    "session/cancel": (schema.CancelNotification, Agent.cancel),
}


def _checked(folder: str) -> str:
    if not Path(folder).is_absolute():
        raise RequestError(_BAD, f"cwd: expected an absolute path, got {folder!r}")
    return folder


def _read_block(part: Any) -> JSON:
    """Return a block of a prompt as content of a user message. Nothing is fetched."""
    match part:
        case schema.TextContentBlock():
            return {"type": "text", "text": part.text}
        case schema.ImageContentBlock():
            source = {"type": "base64", "media_type": part.mime_type, "data": part.data}
            return {"type": "image", "source": source}
        case schema.ResourceContentBlock():
            return {"type": "text", "text": f"[{part.name}]({part.uri})"}
        case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents() as file):
            return {"type": "text", "text": f'<file uri="{html.escape(file.uri)}">\n{file.text}\n</file>'}
    raise RequestError(_BAD, f"prompt: this {part.type} is not supported")


async def serve(factory: Factory, source: BinaryIO, sink: BinaryIO) -> None:
    """Serve loops to an editor, until it closes its end. It needs asyncio.

    Args:
        factory: returns the parts of the loop of a session. It is called for each session that is opened, and for each
            list of sessions.
        source: where the messages of the editor are read from, such as `sys.stdin.buffer`.
        sink: where messages are written to. Nothing else may write there.

    """
    agent = Agent(factory, LineTransport(source, sink))
    try:
        await agent.connection.main_loop()
    finally:
        await agent.close()
