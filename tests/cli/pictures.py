"""The pictures of the command that the docs show: `python -m tests.cli.pictures FOLDER` writes them.

A person at a pseudo-terminal presses keys; what the terminal got becomes an SVG.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tests.cli.support import Session, store_of
from tests.inbox.page.browser import Office
from tests.inbox.page.day import ASK, TOOLS, begin, fill
from toolloop import Answer, Approve, Deny, SqliteStore
from toolloop.testing import call, reply

COLUMNS = 100
THEME = TerminalTheme(
    (255, 255, 255),
    (31, 36, 48),
    [
        *((31, 36, 48), (184, 67, 76), (36, 115, 75), (140, 94, 12), (63, 79, 168), (132, 60, 140)),
        *((17, 110, 125), (110, 115, 128)),
    ],
)
# Without the addresses of fonts that rich writes: nothing is loaded from elsewhere.
FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-title {{ font: bold 18px system-ui, sans-serif }}
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
font-size: {char_height}px; line-height: {line_height}px }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def review(folder: Path, here: Office) -> str:
    """A call whose input could mislead is skipped, one is edited, and another person decides one meanwhile."""
    program = folder / "editor.py"
    program.write_text(
        "import os, pathlib, sys\nfile = pathlib.Path(sys.argv[1])\n"
        "file.write_text(file.read_text().replace('100.0', '80'))\nos.utime(file, (2e9, 2e9))\n"
    )
    env = {"EDITOR": f"{sys.executable} {program}", "VISUAL": ""}
    with Session(folder, ("review",), COLUMNS, env) as person:
        person.press("a")
        person.see("refund in monthly-refunds")
        person.press("e")
        person.press("y\r", at="Approve with your changes? y or n:")
        person.see("→ approved;", "[q] quit")
        here.decide("monthly-refunds", {"r1": Deny("the customer was paid already", by="bo")})
        person.see("→ bo denied this", "[q] quit")
        person.terminal.type("q")
        person.end()
        return person.terminal.raw


def watch(folder: Path, here: Office) -> str:
    """Other people decide, and a loop begins to wait."""
    with Session(folder, ("watch",), COLUMNS) as person:
        person.see("Ctrl-C ends it.")
        here.decide("k8s-0", {"e1": Approve(by="bo")})
        person.see("approved by bo")
        here.decide("deploy-06", {"b1": Deny("not on a Friday", by="eve")})
        person.see("denied by eve")
        begin(here, "cell-2", "Restart cell 2.", "I restart it.", call("shell", {"command": "cellctl restart 2"}))
        person.see("cellctl restart 2")
        here.decide("rollout-plan", {"h1": Answer("eu-central", by="ana")})
        here.drive("rollout-plan", (reply(""), reply("Done.")), tools=TOOLS, params={"tools": [ASK]})
        person.see("ended")
        person.terminal.interrupt()
        person.end()
        return person.terminal.raw


PICTURES: dict[str, Callable[[Path, Office], str]] = {"command-review": review, "command-watch": watch}


def take(name: str, folder: Path) -> Path:
    """Write a picture into a folder."""
    with tempfile.TemporaryDirectory() as work:
        here = Office("", SqliteStore(store_of(Path(work))))
        fill(here, time.time())
        here.now = None
        raw = PICTURES[name](Path(work), here)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    command = Text.assemble(("$ ", "dim"), (f"toolloop {name.removeprefix('command-')}", "bold"))
    console.print(command, Text.from_ansi(re.sub("\r", "", raw).rstrip()), "", sep="\n")
    title = command.plain.removeprefix("$ ")
    svg = console.export_svg(title=title, theme=THEME, code_format=FORMAT, unique_id=name)
    file = folder / f"{name}.svg"
    file.write_text(svg, encoding="utf-8")
    return file


def main(folder: Path) -> None:
    """Write all pictures."""
    for name in PICTURES:
        take(name, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
