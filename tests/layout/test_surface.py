"""The public surface: what the doors promise, the docs list, every part of it documented, and quick to import."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOORS = ["toolloop"] + [
    f"toolloop.{name}"
    for name in (
        *("errors", "terminations", "events", "responses", "compaction", "machine", "history", "providers", "tools"),
        *("testing", "otel"),
    )
]
# Those that need an extra are no part of their floor's door.
DOORS += ["toolloop.tools.mcp"]
HEAVY = (
    *("anthropic", "pydantic", "httpx2", "httpx", "anyio", "cattrs", "sqlite3"),
    *("docstring_parser", "jsonschema", "mcp", "numpy", "opentelemetry"),
)
_LOCAL_PATH = re.compile(r"(?<![\w.>}])/(?:work|root|home|Users|tmp)/\w")
_REGISTRY = re.compile(
    r"pypi\.org|pythonhosted\.|index[-_]url|/simpl[e]\b|artifactor[y]|npmj[s]|conda\.anaconda", re.IGNORECASE
)
_MADE = {"__pycache__", ".venv", ".git", ".hypothesis", ".pytest_cache", ".mypy_cache", ".ruff_cache"}


def listed() -> list[str]:
    """The names that the reference lists, with their modules."""
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    return re.findall(r"^### `(toolloop(?:\.\w+)+)`$", text, re.MULTILINE)


def test_all_public_modules_are_known() -> None:
    """Each module at the top of the package, and each folder whose names are public."""
    source = ROOT / "src" / "toolloop"
    tops = {file.stem for file in source.glob("*.py") if not file.stem.startswith("_")}
    folders = {"compaction", "machine", "otel", "providers", "tools", "testing"}
    assert {f"toolloop.{name}" for name in tops | folders} | {"toolloop", "toolloop.tools.mcp"} == set(DOORS)


def test_the_reference_lists_what_a_door_exports() -> None:
    """`__all__` and the headings of the reference are the same names, each once."""
    for door in DOORS:
        module = importlib.import_module(door)
        found = [name.rpartition(".")[2] for name in listed() if name.rpartition(".")[0] == door]
        assert sorted(module.__all__) == sorted(found)


def documented(door: str) -> Iterator[tuple[str, str]]:
    """What a door shows, and what it says: itself, its classes and functions, and their public members."""
    module = importlib.import_module(door)
    yield door, module.__doc__ or ""
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            yield f"{door}.{name}", value.__doc__ or ""
        if inspect.isclass(value):
            yield from ((f"{door}.{name}.{member}", said) for member, said in members(value))


def members(value: type) -> Iterator[tuple[str, str]]:
    for owner in value.__mro__:
        if not owner.__module__.startswith("toolloop"):
            continue
        for name, member in vars(owner).items():
            function = getattr(member, "__func__", member)
            is_member = isinstance(member, property | cached_property) or inspect.isfunction(function)
            if is_member and not name.startswith("_"):
                yield name, function.__doc__ or ""


def test_everything_public_says_what_it_does() -> None:
    """Modules, classes, functions, methods and properties begin their docstring with a sentence."""
    for door in DOORS:
        shown = list(documented(door))
        assert len(shown) > len(importlib.import_module(door).__all__) // 2
        assert [
            name for name, said in shown if not re.match(r"[A-Z`(@][^\n]*", said) or len(said) < len("Go on.")
        ] == []


def files() -> list[Path]:
    """The files of the repository, without what tools make."""
    tops = [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), ROOT / "Makefile", ROOT / "LICENSE", ROOT / ".gitignore"]
    inner = (file for top in ("src", "tests", "docs", "scripts", ".ci") for file in (ROOT / top).rglob("*"))
    return sorted(file for file in [*tops, *inner] if file.is_file() and not _MADE & set(file.parts))


def test_no_file_names_a_local_path_or_a_registry() -> None:
    """Nothing in the repository depends on one machine, or on where packages come from."""
    found = []
    for file in files():
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if _LOCAL_PATH.search(line) or _REGISTRY.search(line):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert found == []
