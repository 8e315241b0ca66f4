"""The output of the command: tables and conversations for people, JSON for programs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from toolloop.inbox.items import ShownLoop, TrailEntry
from toolloop.inbox.transcript import Part, fields_of, parts_of, readable, visible
from toolloop.stores.protocol import StoredLoop

_STATUS_STYLES = {"needs_decision": "bold yellow", "needs_command": "yellow", "failed": "red", "ended": "dim"}
_DRIVEN = ("runnable", "running", "stopping")
_LOOK_EVERY = 0.5  # seconds
_MARKS = {"user": ("you", "bold green"), "assistant": ("model", "bold blue"), "system": ("system", "bold magenta")}


def print_json(value: object) -> None:
    """Print JSON, in ASCII. The format is stable: only new fields may be added."""
    click.echo(json.dumps(value, indent=2, default=_plain))


def print_loops(loops: Sequence[StoredLoop]) -> None:
    """Print a table of loops."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("loop", "status", "waits for", "changed", "metadata"):
        table.add_column(name, overflow="fold")
    for loop in loops:
        calls = ", ".join(f"{call.name} ({'/'.join(call.path)})" for call in loop.pending)
        metadata = " ".join(f"{key}={value}" for key, value in loop.metadata.items())
        table.add_row(
            _text(loop.loop_id, "bold"),
            _text(loop.status, _STATUS_STYLES.get(loop.status, "")),
            _text(calls),
            moment(loop.head.changed),
            _text(metadata, "dim"),
        )
    Console().print(table if loops else "No loops.")


def loop_as_json(loop: StoredLoop) -> dict[str, Any]:
    """Return a loop of the list as JSON."""
    return {
        "loop_id": loop.loop_id,
        "status": loop.status,
        "created": iso(loop.created),
        "changed": iso(loop.head.changed),
        "deadline": iso(loop.deadline),
        "retry_at": iso(loop.head.retry_at),
        "metadata": dict(loop.metadata),
        "pending": [
            {
                "path": call.path,
                "name": call.name,
                "input": call.input,
                "truncated": call.truncated,
                "why": call.why,
                "reason": call.reason,
                "takes": call.takes,
                "expires_at": iso(call.expires_at),
                "digest": call.digest,
                "preview": call.preview,
            }
            for call in loop.pending
        ],
    }


def wait_for(look: Callable[[], ShownLoop]) -> ShownLoop:
    """Poll a loop until it does not need a driver. On a terminal, a line shows the progress."""
    with Console(stderr=True).status("") as line:
        while (shown := look())["status"] in _DRIVEN:
            line.update(_text(f"{shown['status']} · {_figures(shown)}"))
            time.sleep(_LOOK_EVERY)
    return shown


def print_loop(shown: ShownLoop) -> None:
    """Print a loop: its conversation, its waiting calls, and its usage."""
    console = Console()
    console.print(_text(shown["loop_id"], "bold"), _text(shown["status"], _STATUS_STYLES.get(shown["status"], "")))
    for key, value in shown["metadata"].items():
        console.print(_text(f"{key}: {value}", "dim"))
    waiting = {call["path"][-1] for call in shown["pending"] if len(call["path"]) == 1}
    for part in parts_of(shown["messages"]):
        if part.id not in waiting:
            _print_part(console, part)
    for call in shown["pending"]:
        console.print()
        what = f"{' > '.join(call['names'])} ({'/'.join(call['path'])}) waits: {', '.join(call['takes'])}"
        console.print(_text(what, "bold yellow"))
        for label, text in (("why", call["reason"]), ("expires", call["expires_at"]), ("digest", call["digest"])):
            if text:
                console.print(_text(f"  {label}: {text}", "dim"))
        _print_fields(console, call["input"])
        if call["preview"]:
            console.print(_text("  preview", "dim"))
            console.print(Padding(_preview(call["preview"]), (0, 0, 0, 2)))
    _print_kept(console, shown)
    if shown["error"]:
        console.print()
        console.print(_text(f"failed: {shown['error']}", "red"))
    console.print()
    left = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown["left"].items() if value is not None)
    console.print(_text(_figures(shown) + (f" · left: {left}" if left else ""), "dim"))


def _print_kept(console: Console, shown: ShownLoop) -> None:
    for kept in shown["kept"]:
        console.print()
        console.print(_text(f"kept for the next request, by {kept['by'] or 'a person without a name'}", "bold yellow"))
        for part in parts_of(kept["messages"]):
            _print_part(console, part)


def print_trail(entries: Iterable[TrailEntry]) -> None:
    """Print the decisions and messages of people."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("when", "who", "what", "call", "reason", "content"):
        table.add_column(name, overflow="fold")
    for entry in entries:
        who = "policy" if entry.by_policy else entry.by or ""
        call = f"{entry.name} ({'/'.join(entry.path)})" if entry.path else ""
        content = "" if entry.content is None else readable(entry.content)
        when, what = moment(entry.at.timestamp()), _text(entry.kind, "bold")
        table.add_row(when, _text(who), what, _text(call), _text(entry.reason or ""), _text(content))
    Console().print(table)


def moment(seconds: float) -> str:
    """Format seconds since the epoch for people, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def iso(seconds: float | None) -> str | None:
    """Format seconds since the epoch for programs."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def _figures(shown: ShownLoop) -> str:
    usage = shown["usage"]
    return f"{shown['iterations']} requests · {usage['input_tokens']:,} tokens in · {usage['output_tokens']:,} out"


def _print_part(console: Console, part: Part) -> None:
    console.print()
    who, style = _MARKS.get(part.role, (part.role, "bold"))
    match part.kind:
        case "text":
            console.print(_text(who, style))
            console.print(Padding(Text(part.text), (0, 0, 0, 2)))
        case "call":
            console.print(_text(f"{who} calls {part.name} ({part.id})", style))
            _print_fields(console, part.input or {})
        case "result":
            title = f"{'error' if part.is_error else 'result'} of {part.name} ({part.id})"
            console.print(_text(title, "red" if part.is_error else "cyan"))
            console.print(Padding(Text(part.text), (0, 0, 0, 2)))
        case _:
            console.print(_text(part.name or part.kind, "dim"))
            console.print(Padding(Text(part.text, "dim"), (0, 0, 0, 2)))


def _print_fields(console: Console, given: Mapping[str, Any]) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="cyan", overflow="fold")
    grid.add_column(overflow="fold")
    for name, text in fields_of(given):
        grid.add_row(Text(name), Text(text))
    console.print(Padding(grid, (0, 0, 0, 2)))


def _preview(text: str) -> Text:
    """Return the preview of a call, with colored lines if it is a diff."""
    lines = visible(text).split("\n")
    colours = {"+": "green", "-": "red", "@": "cyan"} if any(line.startswith("@@ ") for line in lines) else {}
    return Text("\n").join([Text(line, colours.get(line[:1], "")) for line in lines])


def _text(text: str, style: str = "") -> Text:
    """Return text without markup."""
    return Text(visible(text), style)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{value!r} cannot be converted to JSON")
