"""A program on a pseudo-terminal: what a person types, and what they see."""

from __future__ import annotations

import os
import pty
import re
import select
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.kit.warm_python import Program

_SECONDS = 60.0  # a deadline, not a wait
_PATIENCE = 5.0  # seconds until a person presses a key again
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

CTRL_C = "\x03"


class Terminal:
    """Runs a Python program on a terminal, as a context manager."""

    def __init__(
        self, arguments: Sequence[str], env: Mapping[str, str], folder: Path | None = None, columns: int = 80
    ) -> None:
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (24, columns))
        self.settings_before = self.settings()
        self._process = Program(
            arguments, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=folder, has_terminal=True
        )
        os.close(slave)
        self._deadline = time.monotonic() + _SECONDS
        self._read = bytearray()
        self._seen = 0

    @property
    def raw(self) -> str:
        """All that was written so far, colours included."""
        return self._read.decode(errors="replace").replace("\r\n", "\n")

    @property
    def screen(self) -> str:
        """All that was written so far, without colours."""
        return _COLOURS.sub("", self.raw)

    def settings(self) -> list[Any]:
        """How the terminal is set: echo, signals, and the rest."""
        return termios.tcgetattr(self._master)

    def expect(self, text: str) -> None:
        """Read until the text appears after what was expected last."""
        while (at := self.screen.find(text, self._seen)) < 0:
            assert self._more(), f"the program ended, and {text!r} did not appear in:\n{self.screen[self._seen :]}"
        self._seen = at + len(text)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C until the program reacts, as a person does.

        Python may take the signal just before it begins to wait for input. It then handles it at the next key.
        """
        os.write(self._master, CTRL_C.encode())
        before = len(self._read) + len("^C")
        while len(self._read) <= before and select.select([self._master], [], [], _PATIENCE)[0]:
            self._more()
        if len(self._read) <= before:
            os.write(self._master, CTRL_C.encode())

    def terminate(self) -> None:
        """Ask the program to end, as `kill` does."""
        self._process.terminate()

    def kill(self) -> None:
        """End the program at once, as `kill -9` does."""
        self._process.kill()
        self._process.wait(_SECONDS)

    def finish(self) -> int:
        """Read to the end; the exit code."""
        while self._more():
            pass
        return self._process.wait(_SECONDS)

    def _more(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, self._deadline - time.monotonic()))
        assert ready, f"nothing more came in time:\n{self.screen}"
        try:
            piece = os.read(self._master, 65536)
        except OSError:  # Linux says so when the other side is closed; others give nothing
            return False
        self._read += piece
        return bool(piece)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.kill()
        os.close(self._master)
