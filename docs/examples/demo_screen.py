"""The looks of the demo: lines of text, coloured where the terminal takes colours."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from typing import Any

from toolloop import Completed, Error, IterationUsage, ToolCall, ToolLoopHandle, Usage, Yielded
from toolloop.terminations import NaturalEnd, StopCondition

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_MARGIN = "  "
_INDENT = "     "
_MOST_LINES = 12  # of one value


class Screen:
    """Prints to the standard output, at most 80 columns wide."""

    def __init__(self) -> None:
        """Look at what the terminal can do."""
        self._colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._width = max(40, min(80, shutil.get_terminal_size().columns)) - 1
        self._iteration = 0
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr] # a terminal that lacks a sign shows "?"

    def opening(self, api: str, folder: str, task: str) -> None:
        """Say what is about to happen."""
        title = "toolloop"
        self._line()
        self._line(_MARGIN + self._paint(title, "bold") + " " * (self._width - len(_MARGIN + title + api)) + api)
        self._rule()
        self._field("folder", folder)
        self._field("task", task)

    def turn(self, turn: Yielded) -> None:
        """Show what the model says, once for each iteration, then the results that are there."""
        if turn.iteration != self._iteration:
            self._iteration = turn.iteration
            self._line()
            for line in self._wrapped(turn.assistant_text or "(the model says nothing)", _INDENT):
                number = f"{turn.iteration:>{len(_MARGIN) + 1}}"
                self._line(line if line is not None else number)
            if turn.pending:
                self._line()
        for call in turn.calls:
            if call.result is not None:
                self._result(call)
