"""mypy and pyright, both strict, over the code, the tests and the Python blocks of the docs: `make types`.

The blocks of a page become one module, each line where it is in the page, in a scratch folder of the repository.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCKS = "build/blocks"  # `tool.pyright` names it, too
_FENCE = re.compile(
    r"^<!-- test\n(?P<hidden>.*?)^-->$|^```(?P<language>\S*)[^\n]*\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
# The blocks of a page are examples of their own: a later one may use a name again.
_SETTINGS = (
    "# mypy: allow-redefinition, disable-error-code=no-redef",
    "# pyright: reportRedeclaration=false",
    "from __future__ import annotations",  # as the tests run them
)
_GIVEN = re.compile(r"^doc\.(\w+) = .*$", re.MULTILINE)


@frozen
class Part:
    """A Python block of a page, or a hidden one. `line`: of its first line, counted from 1."""

    code: str
    line: int
    is_hidden: bool


def parts(page: Path) -> Iterator[Part]:
    """The Python of a page, in order."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        name = "hidden" if found["hidden"] is not None else "code"
        if name == "hidden" or found["language"] == "python":
            yield Part(found[name], text.count("\n", 0, found.start(name)) + 1, name == "hidden")


def module(page: Path) -> str:
    """The blocks of a page as a module. What a hidden part gives to the example is `Any`."""
    lines: list[str] = []
    for part in parts(page):
        code = part.code
        if part.is_hidden:
            code = "\n".join(f"import typing as _t; {name}: _t.Any = None" for name in _GIVEN.findall(code))
        lines += [""] * (part.line - 1 - len(lines)) + code.splitlines()
    return "\n".join([*_SETTINGS, *lines[len(_SETTINGS) :]]) + "\n"


def write_blocks() -> None:
    """Write the module of each page that has Python."""
    folder = ROOT / BLOCKS
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for page in PAGES:
        if any(not part.is_hidden for part in parts(page)):
            name = "_".join(page.relative_to(ROOT).with_suffix("").parts).replace("-", "_")
            (folder / f"{name}.py").write_text(module(page), encoding="utf-8")


def main() -> int:
    """Run both checkers side by side."""
    write_blocks()
    files = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]["files"]
    commands = (["mypy", *files, BLOCKS], ["pyright", "--pythonpath", sys.executable])
    running = [subprocess.Popen([sys.executable, "-m", *each], cwd=ROOT) for each in commands]  # noqa: S603 - our own
    return max(process.wait() for process in running)


if __name__ == "__main__":
    sys.exit(main())
