"""mypy and pyright, both strict, over the code, the tests and the Python blocks of the docs: `make types`.

pyright also verifies that each public symbol has a type.

The blocks of a page become one module, each line where it is in the page, in a scratch folder of the repository.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCKS = "build/blocks"  # `tool.pyright` names it, too
HIDDEN = ROOT / "tests" / "docs" / "cells"
_PIECE = re.compile(
    r"^```(?P<language>\S*)[^\n]*\n(?P<code>.*?)^```$|^#+ (?P<heading>[^\n]+)$", re.MULTILINE | re.DOTALL
)
_CELL = re.compile(r"^# %% ([^\n]*)\n(.*?)(?=^# %% |\Z)", re.MULTILINE | re.DOTALL)
_PLACE = re.compile(r'(before|after) "(.+)"(?: (\d+))?')
# The blocks of a page are examples of their own: a later one may use a name again.
_SETTINGS = (
    "# mypy: allow-redefinition, disable-error-code=no-redef",
    "# pyright: reportRedeclaration=false",
    "from __future__ import annotations",  # as the tests run them
)
_GIVEN = re.compile(r"^doc\.(\w+) = .*$", re.MULTILINE)
_EXAMPLES = [file.stem for file in (ROOT / "docs" / "examples").glob("*.py")]
_IMPORTS_EXAMPLE = re.compile(rf"^from ({'|'.join(_EXAMPLES)}) import ", re.MULTILINE)


@frozen
class Part:
    """A Python block of a page, or a hidden cell beside the tests. `line`: of its first line, counted from 1."""

    code: str
    file: Path
    line: int
    is_hidden: bool


def parts(page: Path) -> Iterator[Part]:
    """The Python of a page in order: its blocks, and around them the cells of its file in tests/docs/cells."""
    text = page.read_text(encoding="utf-8")
    cells = hidden_cells(page)
    heading, counts = "", Counter[str]()
    for found in _PIECE.finditer(text):
        if found["heading"]:
            heading = found["heading"]
        elif found["language"] == "python":
            counts[heading] += 1
            yield from cells.pop(("before", heading, counts[heading]), ())
            yield Part(found["code"], page, text.count("\n", 0, found.start("code")) + 1, is_hidden=False)
            yield from cells.pop(("after", heading, counts[heading]), ())
    if cells:
        raise ValueError(f"{hidden_file(page)}: {page} does not have a block for {', '.join(map(str, cells))}")


def hidden_file(page: Path) -> Path:
    """The file with the hidden cells of a page. It exists only if the page needs one."""
    return HIDDEN / page.relative_to(ROOT / "docs" if page.is_relative_to(ROOT / "docs") else ROOT).with_suffix(".py")


def hidden_cells(page: Path) -> dict[tuple[str, str, int], list[Part]]:
    """The cells by their place: before or after, the heading of the section, and the number of the block in it."""
    cells: dict[tuple[str, str, int], list[Part]] = {}
    file = hidden_file(page)
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    for found in _CELL.finditer(text):
        place = _PLACE.fullmatch(found[1])
        if place is None:
            raise ValueError(f'{file}: expected # %% before "Heading" or # %% after "Heading" 2, got # %% {found[1]}')
        part = Part(found[2], file, text.count("\n", 0, found.start(2)) + 1, is_hidden=True)
        cells.setdefault((place[1], place[2], int(place[3] or 1)), []).append(part)
    return cells


def module(page: Path) -> str:
    """The blocks of a page as a module. What a hidden cell gives to the example is `Any`, from the fence on."""
    lines: list[str] = []
    given: list[str] = []
    for part in parts(page):
        if part.is_hidden:
            given += [f"{name}: _t.Any = None" for name in _GIVEN.findall(part.code)]
            continue
        if _IMPORTS_EXAMPLE.search(part.code):
            continue  # such a program is checked as a file of its own
        lines += [""] * (part.line - 2 - len(lines)) + ["; ".join(["import typing as _t", *given]) if given else ""]
        lines += part.code.splitlines()
        given = []
    return "\n".join([*_SETTINGS, *lines[len(_SETTINGS) :]]) + "\n"


def write_blocks() -> None:
    """Write the module of each page that has Python."""
    folder = ROOT / BLOCKS
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for page in PAGES:
        if any(parts(page)):
            name = "_".join(page.relative_to(ROOT).with_suffix("").parts).replace("-", "_")
            (folder / f"{name}.py").write_text(module(page), encoding="utf-8")


def main() -> int:
    """Run both checkers side by side, and print the symbols without a type if there are any."""
    write_blocks()
    files = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]["files"]
    commands = (["mypy", *files, BLOCKS], ["pyright", "--pythonpath", sys.executable])
    running = [subprocess.Popen([sys.executable, "-m", *each], cwd=ROOT) for each in commands]  # noqa: S603 - our own
    # `--verifytypes` ignores `--pythonpath`, and takes the packages of the first `python` of the path.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    verified = subprocess.run(
        [sys.executable, "-m", "pyright", "--ignoreexternal", "--verifytypes", "toolloop"],
        check=False,
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    if verified.returncode:
        print(verified.stdout)
    return max(verified.returncode, *(process.wait() for process in running))


if __name__ == "__main__":
    sys.exit(main())
