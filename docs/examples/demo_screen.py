"""The looks of the demo: lines of text, coloured where the terminal takes colours."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

from toolloop import Completed, Error, ToolCall, ToolLoopHandle, Usage, Yielded
from toolloop.terminations import NaturalEnd, StopCondition

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_MARGIN, _INDENT = "  ", "     "
_MOST_LINES = 12  # of one value
_KEYS = "[a]pprove  [d]eny  [e]dit  a[n]swer  [s]top"


class Screen:
    """Prints to the standard output, at most 80 columns wide."""

    def __init__(self) -> None:
        """Look at what the terminal can do."""
        self._coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._width = max(40, min(80, shutil.get_terminal_size().columns)) - 1
        self._iteration = 0
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a sign shows "?"

    def opening(self, api: str, folder: str, task: str) -> None:
        """Say what is about to happen."""
        self._line()
        self._line(_MARGIN + self._paint("bold", "toolloop demo") + self._paint("dim", f" · {api}"))
        self._line(_MARGIN + self._paint("dim", "─" * (self._width - 2 * len(_MARGIN))))
        for name, value in (("folder", folder), ("task", task)):
            for number, line in enumerate(_wrapped(value, self._width - 10)):
                self._line(_MARGIN + self._paint("dim", f"{'' if number else name:8}") + line)

    def turn(self, turn: Yielded) -> None:
        """What the model says, once for each iteration, and the results, once they are there."""
        if turn.iterations != self._iteration:
            self._iteration = turn.iterations
            self._line()
            self._say(turn.text or "…", str(turn.iterations))
        if not turn.pending:
            self._line()
            for call in turn.calls:
                self._result(call)

    def waiting(self, call: ToolCall) -> None:
        """A call that waits, with its whole input, or as much of it as is readable."""
        self._line()
        self._bar(self._paint("bold", call.name) + " waits for your decision")
        self._bar()
        shown = {name: _readable(value) for name, value in call.effective_input.items()}
        space = max(map(len, shown), default=0) + 2
        for name, text in shown.items():
            for number, line in enumerate(_first_lines(text, self._width - len(_INDENT) - 2 - space)):
                self._bar(self._paint("cyan", f"{'' if number else _visible(name):{space}}") + line)
        self._bar()

    def page(self, address: str) -> None:
        """Where the calls are decided."""
        self._line(_MARGIN + self._paint("dim", f"{'approve':8}") + address)

    def in_browser(self, turn: Yielded) -> None:
        """Calls that wait for a click."""
        self.turn(turn)
        self._line()
        for call in turn.pending:
            self._bar(self._paint("bold", call.name) + " waits in the browser")

    def menu(self) -> str:
        """Ask for one of the keys."""
        return self.ask(_KEYS).lower()

    def ask(self, question: str) -> str:
        """Ask for a line of text.

        Raises:
            EOFError: there is no more input.

        """
        bar = self._paint("yellow", "│")
        print(f"{_INDENT}{bar} {self._paint('bold', question)} > ", end="", flush=True)
        try:
            return input().strip()
        except EOFError:
            self._line()
            raise

    def complain(self, text: str) -> None:
        """What was typed cannot be taken."""
        for line in _wrapped(text, self._width - len(_INDENT) - 2):
            self._bar(self._paint("red", line))

    def decided_alone(self) -> None:
        """Nobody was asked."""
        self._bar(self._paint("dim", "approved without asking"))

    def completed(self, done: Completed) -> None:
        """How the loop ended: the answer, if the model came to one."""
        self._line()
        match done.termination:
            case NaturalEnd():
                self._say(done.text or "(no text)", self._paint("green", "✓"))
            case StopCondition(reason):
                self._say(f"Stopped: {reason}.", self._paint("yellow", "■"))
            case other:
                self._say(f"Ended early: {other}. {done.text or ''}", self._paint("yellow", "■"))

    def failed(self, failed: Error) -> None:
        """Why the request failed."""
        self._line()
        again = "The same request may succeed later." if failed.retryable else ""
        self._say(f"The request failed: {failed.error} {again}", self._paint("red", "✗"))

    def closing(self, handle: ToolLoopHandle, files: list[str]) -> None:
        """What the folder holds now, and what each iteration used."""
        self._line()
        self._say(f"Now in the folder: {', '.join(files) or 'nothing'}", " ")
        self._line()
        if not handle.usage_log:
            return
        self._row("dim", "iteration", "stop reason", "input", "output", "seconds")
        for each in handle.usage_log:
            self._row("", str(each.iteration), each.stop_reason or "", *_counts(each.usage), f"{each.seconds:.3f}")
        seconds = sum(each.seconds for each in handle.usage_log)
        self._row("bold", "total", "", *_counts(handle.total_usage), f"{seconds:.3f}")
        self._line()

    def interrupted(self) -> None:
        """Ctrl-C."""
        self._line()
        self._line()
        self._say("Interrupted. What still waited did not run. Bye!", self._paint("yellow", "■"))

    def _result(self, call: ToolCall) -> None:
        """One line: what ran, and how its result begins."""
        bad = call.result is not None and call.result.is_error
        mark = self._paint("red", "✗") if bad else self._paint("green", "✓")
        title = " ".join([call.name, *(str(value) for name, value in call.effective_input.items() if name == "path")])
        first, *more = _visible(_said(call)).splitlines() or [""]
        rest = f" (+{len(more)} lines)" if more else ""
        room = self._width - len(_INDENT + "✓  → " + title + rest)
        text = textwrap.shorten(first, max(room, 10), placeholder="…")
        self._line(f"{_INDENT}{mark} {_visible(title)} {self._paint('dim', '→ ' + text + rest)}")

    def _say(self, text: str, mark: str) -> None:
        for number, line in enumerate(_wrapped(text.strip(), self._width - len(_INDENT))):
            self._line(line and (f"{_MARGIN}{mark}  {line}" if number == 0 else _INDENT + line))

    def _row(self, style: str, *cells: str) -> None:
        iteration, reason, *numbers = cells
        text = f"{iteration:<11}{reason:<17}" + "".join(f"{number:>11}" for number in numbers)
        self._line(_INDENT + self._paint(style, text))

    def _bar(self, text: str = "") -> None:
        self._line(f"{_INDENT}{self._paint('yellow', '│')} {text}".rstrip())

    def _paint(self, style: str, text: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self._coloured and style else text

    def _line(self, text: str = "") -> None:
        print(text, flush=True)


def _counts(usage: Usage) -> tuple[str, str]:
    return f"{usage.total_input_tokens:,}", f"{usage.output_tokens:,}"


def _said(call: ToolCall) -> str:
    """What came of a call, for a person to read."""
    decision, content = call.decision, call.result.content if call.result else ""
    if decision is not None and decision.kind == "deny":
        return f"denied: {decision.reason}"
    text = content if isinstance(content, str) else str(content[0].get("text", ""))
    if decision is not None and decision.kind == "answer":
        return f"answered by you: {text}"
    return f"{text}{', as you edited it' if call.effective_input != call.input else ''}"


def _readable(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _visible(text: str) -> str:
    """The text without anything that could move the cursor or hide a part: what is approved must be what is seen."""
    return "".join(sign if sign.isprintable() or sign == "\n" else ascii(sign)[1:-1] for sign in text)


def _wrapped(text: str, width: int) -> Iterator[str]:
    """The lines of a text, the long ones broken; those of a list item are indented."""
    for line in _visible(text).splitlines() or [""]:
        hang = "  " if line.startswith("- ") else ""
        yield from textwrap.wrap(line, width, subsequent_indent=hang) or [""]


def _first_lines(text: str, width: int) -> list[str]:
    lines = [part for line in _visible(text).splitlines() or [""] for part in textwrap.wrap(line, width) or [""]]
    cut = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], f"… {cut} more lines"] if cut > 0 else lines
