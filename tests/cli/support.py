"""What the tests of the command share: a store, the command in this process, and a person at a terminal."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import pytest
from attrs import define, field

from tests.docs.examples.terminal import Terminal
from tests.inbox.support import desk
from tests.kit.world import World
from toolloop._cli.run import run

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
Ran = tuple[int, str, str]
Command = Callable[..., Ran]


def store_of(folder: Path) -> str:
    return str(folder / "loops.db")


def filled(folder: Path, **more: Any) -> World:
    """A file with a loop in which two calls wait."""
    tools = more.pop("tools", None)
    found = desk("sqlite", folder, now=time.time(), **more)
    found.tools = tools or found.tools
    found.drive(metadata={"owner": "ana"})
    return found


def command(capsys: pytest.CaptureFixture[str], folder: Path) -> Command:
    """Run the command on the file of a folder: exit code, output, errors."""

    def ran(*arguments: str, store: str | None = store_of(folder)) -> Ran:
        code = run([*arguments, *(() if store is None else ("--store", store))])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return ran


def digest_of(found: World, call_id: str = "c1", loop_id: str = "loop") -> str:
    return next(call.digest for call in found.inbox.pending() if (call.loop_id, call.id) == (loop_id, call_id))


@define
class Session:
    """A person at a terminal with the command, on the file of a folder."""

    folder: Path
    arguments: tuple[str, ...]
    columns: int = 80
    env: Mapping[str, str] = field(factory=dict)
    terminal: Terminal = field(init=False)

    def __enter__(self) -> Self:
        env = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS", "LINES"}}
        env |= {"TERM": "xterm-256color", "LOGNAME": "ana", "TOOLLOOP_STORE": store_of(self.folder), "TZ": "UTC"}
        arguments = ["-m", "toolloop", *self.arguments]
        self.terminal = Terminal(arguments, {**env, **self.env}, self.folder, self.columns).__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.terminal.__exit__(*exc_info)

    def see(self, *texts: str) -> None:
        """Wait until texts appear, one after the other."""
        for text in texts:
            self.terminal.expect(text)

    def press(self, keys: str, at: str = "[q] quit") -> None:
        """Press keys once the question is on the screen."""
        self.see(at)
        self.terminal.type(keys)

    def end(self) -> tuple[int, str]:
        """Wait for the end: the exit code, and the screen. It never moves the cursor, so that this is what is seen."""
        code = self.terminal.finish()
        assert not re.search(r"\x1b(?!\[[0-9;]*m)", self.terminal.raw)
        rows = self.terminal.screen.split("\n")
        assert max(map(len, rows)) <= self.columns
        return code, "\n".join(row.rstrip() for row in rows)


def editor(folder: Path, *replacements: tuple[str, str]) -> dict[str, str]:
    """The variable of an editor that replaces texts: the first pair when it is first opened, and so on.

    It keeps what it was opened with in `opened-N`.
    """
    (folder / "replacements.json").write_text(json.dumps(replacements))
    program = folder / "editor.py"
    program.write_text(
        "import json, os, pathlib, sys\n"
        "here, file = pathlib.Path(__file__).parent, pathlib.Path(sys.argv[1])\n"
        "number = len(list(here.glob('opened-*')))\n"
        "old, new = json.loads((here / 'replacements.json').read_text())[number]\n"
        "text = file.read_text()\n"
        "(here / f'opened-{number}').write_text(text)\n"
        "file.write_text(text.replace(old, new))\n"
        "os.utime(file, (number + 1e9, number + 1e9))\n"
    )
    return {"EDITOR": f"{sys.executable} {program}", "VISUAL": ""}
