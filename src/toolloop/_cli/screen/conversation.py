"""The conversation of a loop, its waiting calls and its figures, as `show` prints them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from toolloop._cli.screen.tables import STATUS_STYLES
from toolloop._cli.screen.texts import Line, exact, input_lines, print_lines, prose_lines, text_of
from toolloop._interface.heads import text_of_cost
from toolloop.inbox.items import ShownLoop
from toolloop.inbox.shown.characters import shown_line
from toolloop.inbox.shown.previews import is_diff, unified_lines
from toolloop.inbox.shown.values import shown_input
from toolloop.inbox.transcript import MessagePart, read_parts
from toolloop.inbox.watching import AT_REST

_LOOK_EVERY = 0.5  # seconds
_MARKS = {"user": ("you", "bold green"), "assistant": ("model", "bold blue"), "system": ("system", "bold magenta")}


def wait_for(look: Callable[[], ShownLoop]) -> ShownLoop:
    """Poll a loop until it does not need a driver. On a terminal, a line shows the progress."""
    with Console(stderr=True).status("") as line:
        while (shown := look())["status"] not in AT_REST:
            line.update(Text(f"{shown['status']} · {_figures(shown)}"))
            time.sleep(_LOOK_EVERY)
    return shown


def print_loop(shown: ShownLoop) -> None:
    """Print a loop: its conversation, its waiting calls, and its usage."""
    print_lines(Console(highlight=False), _loop_lines(shown))


def _loop_lines(shown: ShownLoop) -> Iterator[Line]:
    status = Text(f" {shown['status']}", STATUS_STYLES.get(shown["status"], ""))
    yield _title(exact(shown["loop_id"], "bold").append_text(status))
    for key, value in shown["metadata"].items():
        yield _title(exact(f"{key}: {value}", "dim"))
    waiting = {call["path"][-1] for call in shown["pending"] if len(call["path"]) == 1}
    for part in read_parts(shown["messages"]):
        if part.id not in waiting:
            yield from _part_lines(part)
    for call in shown["pending"]:
        yield from _waiting_lines(shown, call)
    for kept in shown["kept"]:
        yield _title(Text())
        who = exact(kept["by"]) if kept["by"] else Text("a person without a name")
        yield _title(Text.assemble(("kept for the next request, by ", "bold yellow"), who))
        for part in read_parts(kept["messages"]):
            yield from _part_lines(part)
    if shown["error"]:
        yield _title(Text())
        yield from (Line(line, wraps=True) for line in prose_lines(f"failed: {shown['error']}"))
    yield _title(Text())
    left = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown["left"].items() if value is not None)
    yield _title(Text(_figures(shown) + (f" · left: {left}" if left else ""), "dim"))


def _waiting_lines(shown: ShownLoop, call: Mapping[str, Any]) -> Iterator[Line]:
    yield _title(Text())
    names = Text(" > ").join(exact(name) for name in call["names"])
    takes = f" waits: {', '.join(call['takes'])}"
    yield _title(Text("", "bold yellow").append_text(names).append_text(_id("/".join(call["path"]))).append(takes))
    for label, text in (("why", call["reason"]), ("expires", call["expires_at"]), ("digest", call["digest"])):
        if text:
            yield Line(Text.assemble((f"{label}: ", "dim"), exact(text)))
    name = "/".join(call["path"])
    how = shown["shown"].get(name)
    diff, path, secrets = ((), None, ()) if how is None else (how["diff"], how["path"], how["secret"])
    hidden = {each: str(call["input"][each]) for each in secrets if call["input"].get(each) is not None}
    given = shown_input(call["input"], shown["schemas"].get(name), diff=diff, path=path, secret=hidden)
    yield from input_lines(given)
    if call["preview"]:
        yield from preview_lines(call["preview"])


def preview_lines(text: str) -> Iterator[Line]:
    """Yield the preview of a call, with colored lines if it is a diff."""
    yield Line(Text("preview, made by the tool; not what runs", "dim"))
    styles = {"add": "green", "del": "red", "hunk": "cyan"} if is_diff(text) else {}
    for kind, line in unified_lines(text):
        yield Line(text_of(shown_line(line, prose=True), styles.get(kind, "")), "    ")


def _part_lines(part: MessagePart) -> Iterator[Line]:
    who, style = _MARKS.get(part.role, (part.role, "bold"))
    yield _title(Text())
    name = exact(part.name or part.kind)
    match part.kind:
        case "text":
            yield _title(Text(who, style))
        case "call":
            yield _title(Text(f"{who} calls ", style).append_text(name).append_text(_id(part.id)))
            yield from input_lines(shown_input({**(part.input or {})}))
        case "result":
            title = Text("error of " if part.is_error else "result of ", "red" if part.is_error else "cyan")
            yield _title(title.append_text(name).append_text(_id(part.id)))
        case _:
            yield _title(name)
    if part.kind != "call":
        yield from (Line(line, wraps=True) for line in prose_lines(part.text))


def _id(call: str) -> Text:
    return Text(" (").append_text(exact(call)).append(")")


def _title(text: Text) -> Line:
    return Line(text, "")


def _figures(shown: ShownLoop) -> str:
    usage = shown["usage"]
    read, written = usage["total_input_tokens"], usage["output_tokens"]
    cost = "" if shown["cost"] is None else f" · {text_of_cost(shown['cost'])}"
    return f"{shown['iterations']} requests · {read:,} tokens in · {written:,} out{cost}"
