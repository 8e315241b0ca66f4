"""The floors of the house: who may import whom, what the core may know, and how long a file may be."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolloop

SOURCE = Path(toolloop.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
FLOORS = {"_doors": -1, "core": 0, "history": 1, "tools": 1, "providers": 1, "stores": 1, "handle": 2, "testing": 3}
IMPURE = {"time", "random", "threading", "logging", "socket", "os", "uuid", "secrets", "asyncio"}
MODULES = [".".join(("toolloop", *file.relative_to(SOURCE).with_suffix("").parts)) for file in FILES]


def imports(file: Path) -> Iterator[str]:
    """The modules a file imports, wherever in it; of `toolloop`, with the part that is imported."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports relatively"
            yield from (f"{node.module}.{name.name}" for name in node.names)


def name(value: object) -> str:
    return str(value.relative_to(SOURCE)) if isinstance(value, Path) else str(value)


@pytest.mark.parametrize("file", [file for file in FILES if file.parent != SOURCE], ids=name)
def test_a_file_imports_only_from_its_own_floor_and_from_below(file: Path) -> None:
    """Core, then history, tools, providers and stores, then handle, then testing; nobody imports the doors."""
    here = file.relative_to(SOURCE).parts[0]
    for module in imports(file):
        root, *below = module.split(".")
        if root == "toolloop":
            assert below[0] in FLOORS, f"{module} is a door"
            assert below[0] == here or FLOORS[below[0]] < FLOORS[here], f"{module} is not below {here}"


@pytest.mark.parametrize("file", sorted((SOURCE / "core").glob("*.py")), ids=name)
def test_the_core_is_pure(file: Path) -> None:
    """Standard library and attrs only; no clock, no randomness, no threads, no logging, no I/O."""
    roots = {module.split(".")[0] for module in imports(file)}
    assert roots <= (sys.stdlib_module_names - IMPURE) | {"attrs", "toolloop"}
    # A moment is a value; to ask which one it is, is not.
    assert not re.search(r"\b(now|today|utcnow)\(", file.read_text("utf-8"))


@pytest.mark.parametrize("file", FILES, ids=name)
def test_no_file_is_longer_than_400_lines(file: Path) -> None:
    """A file one would not want to read in one sitting is two files."""
    assert len(file.read_text().splitlines()) <= 400


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_exists(module: str) -> None:
    """What `__all__` promises is there, once."""
    loaded = importlib.import_module(module.removesuffix(".__init__"))
    public = getattr(loaded, "__all__", [])
    assert [word for word in public if not hasattr(loaded, word)] == []
    assert len(set(public)) == len(public)
