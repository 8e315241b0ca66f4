"""Single keys of a terminal. Keys that were pressed before a question was on the screen do not answer it."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

import click

_QUIET = 0.5  # seconds without a key before a question, as on the page: a key that is held down counts once
_LOOK_EVERY = 0.5  # seconds


@contextmanager
def _single_keys() -> Generator[int]:
    try:
        import termios  # noqa: PLC0415 - Windows has neither
        import tty  # noqa: PLC0415 - it imports termios
    except ImportError as error:
        raise click.UsageError("this needs a POSIX terminal. Use `pending --json`, and `approve --digest`") from error
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal, termios.TCSADRAIN)  # Ctrl-C stays a signal
        yield terminal
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def drop_early_keys() -> None:
    """Wait until no key is pressed, and forget the keys that were."""
    with _single_keys() as terminal:
        _drop(terminal)


def ask_key(ask: Callable[[bool], None], is_over: Callable[[], bool]) -> str | None:
    """Ask for a key, and return it; None if there is nothing left to ask. Several keys at once are one text.

    Args:
        ask: prints the question. It gets whether keys were pressed before, and dropped.
        is_over: asked every half second.

    Raises:
        EOFError: the terminal is gone.

    """
    with _single_keys() as terminal:
        ask(_drop(terminal))
        while not select.select([terminal], [], [], _LOOK_EVERY)[0]:
            if is_over():
                return None
        return _read(terminal)


def _drop(terminal: int) -> bool:
    dropped = False
    while select.select([terminal], [], [], _QUIET)[0]:
        dropped = bool(_read(terminal))
    return dropped


def _read(terminal: int) -> str:
    try:
        read = os.read(terminal, 1024)
    except OSError as error:  # Linux raises it when the other side is closed; other systems return nothing
        raise EOFError from error
    if not read or read == b"\x04":
        raise EOFError
    return read.decode(errors="replace")
