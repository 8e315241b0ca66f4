"""What an editor shows of a session: text, thoughts, and calls, as updates of the protocol."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from acp.core import Connection

from toolloop import AsyncToolLoopHandle, ToolCall, events as ev
from toolloop.acp.loops import AcpLoops
from toolloop.inbox import escape_hidden, read_parts
from toolloop.tools import hide_secrets
from toolloop.types import JSON

_LONGEST = 80  # characters of an input in a title


class Screen:
    """Shows one session."""

    def __init__(self, loops: AcpLoops, folder: str, handle: AsyncToolLoopHandle, editor: Connection) -> None:
        """Keep the parts. `folder`: the folder that the editor works in."""
        self._loops, self._folder, self._handle, self._editor = loops, folder, handle, editor
        self._contents: dict[str, list[JSON]] = {}  # of each call that the editor knows
        self._open: set[str] = set()  # the calls among them without a result
        self._has_streamed = False
        self._message: str | None = None  # the id of the reply that comes

    async def show(self, event: ev.WatchEvent) -> None:
        """Show an event. Text and thoughts are shown of the outermost loop, calls of all loops."""
        name = "/".join((*event.path, getattr(event, "call_id", "")))
        match event:
            case ev.TextDelta(path=(), text=text):
                self._has_streamed = True
                await self._say("agent_message_chunk", text, self._message)
            case ev.ThinkingDelta(path=(), thinking=text):
                await self._say("agent_thought_chunk", text, self._message)
            case ev.RequestStarted(path=(), summary=False):
                self._has_streamed, self._message = False, event.message_id
            case ev.RequestAnswered(path=(), summary=False) if not self._has_streamed:
                await self._say("agent_message_chunk", self._handle.view()["text"] or "", self._message)
            case ev.CallProposed(name=tool) | ev.CallStarted(name=tool):
                if name not in self._contents:
                    await self.show_call((*event.path, event.call_id), tool)
                if isinstance(event, ev.CallStarted):
                    await self._update(name, status="in_progress")
            case ev.CallProgress():
                text = event.message or f"{event.progress} of {event.total}"
                await self._update(name, content=[*self._contents.get(name, ()), _text(text)])
            case ev.CallFinished(plain_text=text, is_error=is_error):
                await self.finish(name, text, is_error=is_error)

    async def note(self, text: str) -> None:
        """Tell the person something that the model did not say."""
        await self._say("agent_message_chunk", f"\n\n_{text}_\n\n")

    async def show_call(self, path: tuple[str, ...], tool: str, given: JSON = None) -> dict[str, JSON]:
        """Show a call of a tool that has not ended, and return its fields. `given`: its input as the model gave it."""
        fields, name = self._describe(path, tool, given or {}), "/".join(path)
        kind = "tool_call_update" if name in self._contents else "tool_call"
        self._contents[name] = fields["content"]
        self._open.add(name)
        await self._send({"sessionUpdate": kind, **fields})
        return fields

    async def finish(self, name: str, text: str, *, is_error: bool) -> None:
        """Show the end of a call, once."""
        if name in self._open:
            self._open.discard(name)
            content = [*self._contents.get(name, ()), _text(text)]
            await self._update(name, status="failed" if is_error else "completed", content=content)

    async def show_ends(self) -> None:
        """Show the ends of calls that were settled while no turn was read, or by a stop."""
        if left := self._open - {each["id"] for each in self._handle.view()["running"]}:
            results = {part.id: part for part in read_parts(self._handle.messages) if part.kind == "result"}
            for name in sorted(left):
                part = results.get(name)
                await self.finish(name, part.text if part else "", is_error=part is None or part.is_error)

    async def replay(self, messages: Iterable[Mapping[str, Any]], calls: Iterable[ToolCall]) -> None:
        """Show a whole conversation, then the calls that wait."""
        self._contents.clear()
        self._open.clear()
        for part in read_parts(messages):
            match part.kind:
                case "thinking":
                    await self._say("agent_thought_chunk", part.text, part.message)
                case "call":
                    await self.show_call((part.id,), part.name, part.input)
                case "result":
                    await self.finish(part.id, part.text, is_error=part.is_error)
                case kind:
                    role = "user" if part.role == "user" else "agent"
                    text = part.text if kind == "text" else f"[{part.name}]"
                    await self._say(f"{role}_message_chunk", text, part.message)
        for call in calls:
            await self.show_call(call.path, call.name)

    async def _send(self, update: JSON) -> None:
        await self._editor.send_notification("session/update", {"sessionId": self._handle.loop_id, "update": update})

    async def _say(self, kind: str, text: str, message: str | None = None) -> None:
        named = {"messageId": message} if message else {}
        await self._send({"sessionUpdate": kind, "content": {"type": "text", "text": text}, **named})

    async def _update(self, name: str, **fields: JSON) -> None:
        await self._send({"sessionUpdate": "tool_call_update", "toolCallId": name, **fields})

    def _describe(self, path: tuple[str, ...], tool: str, given: JSON) -> dict[str, JSON]:
        fields: dict[str, JSON] = {"toolCallId": "/".join(path), "kind": "other", "status": "pending"}
        if (call := self._handle.state.find_call(path)) is None:  # its round is closed by now
            return {**fields, "title": _title(tool, given), "rawInput": given, "content": []}
        setup = self._handle.state.loops[path[:-1]].setup
        facts, secrets = setup.tool(tool), setup.secrets_of(tool)
        given = hide_secrets(json.loads(call.effective_input), secrets, self._loops.store.secret)
        content = [_text(f"````\n{call.preview}\n````")] if call.preview else []
        if facts is not None and facts.diff:
            old, new = (str(given.get(each) or "") for each in facts.diff)
            file = str(Path(self._folder, str(given.get(facts.path or "", ""))))
            content.append({"type": "diff", "path": file, "oldText": old or None, "newText": new})
            fields |= {"kind": "edit", "locations": [{"path": file}]}
        own = {} if self._loops.describe is None else self._loops.describe(tool, given)
        return {**fields, "title": _title(tool, given), "rawInput": given, "content": content, **own}


def _title(tool: str, given: Mapping[str, JSON]) -> str:
    texts = (each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in given.values())
    gist = " · ".join(" ".join(each.split()) for each in texts)
    gist = gist if len(gist) <= _LONGEST else f"{gist[: _LONGEST - 1]}…"
    return escape_hidden(f"{tool}: {gist}" if gist else tool)


def _text(text: str) -> JSON:
    return {"type": "content", "content": {"type": "text", "text": text}}
