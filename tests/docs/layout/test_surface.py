"""The public surface: what the doors promise, the docs list, every part of it documented, and quick to import."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from scripts.surface import DOORS, HANDED_OUT, MODULES

ROOT = Path(__file__).parents[3]
HEAVY = (
    *("anthropic", "pydantic", "httpx2", "httpx", "anyio", "cattrs", "sqlite3"),
    *("docstring_parser", "jsonschema", "mcp", "numpy", "opentelemetry", "dbos", "ag_ui"),
)
_CALLED_BY_SYNTAX = ("__init__", "__call__", "__iter__", "__next__", "__aiter__", "__anext__", "__enter__")
_LOCAL_PATH = re.compile(r"(?<![\w.>}])/(?:work|root|home|Users|tmp)/\w")
_REGISTRY = re.compile(r"pypi\.org|pythonhosted\.|index[-_]url|/simpl[e]\b|artifactor[y]|npmj[s]|conda\.anaconda")
_MADE = {"__pycache__", ".venv", ".git", ".hypothesis", ".pytest_cache", ".mypy_cache", ".ruff_cache"}


def test_all_public_modules_are_known() -> None:
    """Each module at the top of the package, and each folder whose names are public."""
    source = ROOT / "src" / "toolloop"
    tops = {file.stem for file in source.glob("*.py") if not file.stem.startswith("_")}
    folders = {path.parent.name for path in source.glob("*/__init__.py") if not path.parent.name.startswith("_")}
    assert {f"toolloop.{name}" for name in tops | folders} | {"toolloop", "toolloop.tools.mcp"} == set(DOORS)


def test_the_reference_has_a_page_for_each_public_module() -> None:
    """It has each name of `__all__` once, and each public member of a class. `make site` checks its own form of it."""
    pages = {page.stem: page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md")}
    del pages["index"]
    doors = {(name or "toolloop"): f"toolloop.{name}".rstrip(".") for name in MODULES}
    assert pages.keys() == doors.keys()
    for page, door in doors.items():
        assert re.findall(r"^# (\S+)$\n\n<!-- generated: (\S+) -->$", pages[page], re.MULTILINE) == [(door, door)]
        names = re.findall(r"^## (\S+)$", pages[page], re.MULTILINE)
        assert sorted(names) == sorted(importlib.import_module(door).__all__)
        shown = {f"{door}.{name}" for name in re.findall(r"^##+ (\S+)$", pages[page], re.MULTILINE)}
        assert {name for name, _ in documented(door)} - {door} <= shown


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
            is_member = isinstance(member, (property, cached_property)) or inspect.isfunction(function)
            if is_member and not name.startswith("_"):
                yield name, inspect.getdoc(getattr(value, name)) or ""


def test_everything_public_says_what_it_does() -> None:
    """Modules, classes, functions, methods and properties begin their docstring with a sentence."""
    for door in DOORS:
        shown = list(documented(door))
        assert len(shown) > len(importlib.import_module(door).__all__) // 2
        assert [
            name for name, said in shown if not re.match(r"[A-Z`(@][^\n]*", said) or len(said) < len("Go on.")
        ] == []


def in_signatures(door: str) -> Iterator[tuple[str, Any]]:
    """The annotations in the public signatures of a door, each with the module that it is written in."""
    for name, value in exported(door).items():
        if inspect.isfunction(value):
            yield from ((value.__module__, each) for each in of_function(value))
        for owner in value.__mro__ if inspect.isclass(value) else ():
            if not owner.__module__.startswith("toolloop"):
                continue
            parts = [each for part, each in vars(owner).get("__annotations__", {}).items() if part[0] != "_"]
            for member, found in vars(owner).items():
                is_shown = member[0] != "_" or member in _CALLED_BY_SYNTAX
                if is_shown and not (member == "__init__" and name in HANDED_OUT):
                    parts += of_function(found)
            yield from ((owner.__module__, each) for each in parts)


def of_function(member: Any) -> list[Any]:
    function = getattr(member, "__func__", getattr(member, "fget", getattr(member, "func", member)))
    if not inspect.isfunction(function):
        return []
    signature = inspect.signature(function)
    return [signature.return_annotation, *(each.annotation for each in signature.parameters.values())]


def written(annotation: Any) -> set[str]:
    """The names in an annotation; `machine.Event` is `Event`. The words of a `Literal` are quoted, and so left out."""
    text = getattr(annotation, "__forward_arg__", annotation)
    if not isinstance(text, str):
        return set()
    nodes = [*ast.walk(ast.parse(text, mode="eval"))]
    return {each.id for each in nodes if isinstance(each, ast.Name)} | {
        each.attr for each in nodes if isinstance(each, ast.Attribute)
    }


@cache
def imported(module: str) -> dict[str, str]:
    """From which module a module has a name, also if only type checkers import it."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    found = (each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom))
    return {part.name: each.module or "" for each in found for part in each.names}


def meant(module: str, name: str) -> Any:
    """What a name in an annotation means; None: it is none of ours."""
    origin = imported(module).get(name, module)
    value = getattr(importlib.import_module(origin), name, None) if origin.startswith("toolloop") else None
    return None if isinstance(value, (ModuleType, TypeVar, ParamSpec)) else value


def exported(door: str) -> dict[str, Any]:
    module = importlib.import_module(door)
    return {name: getattr(module, name) for name in module.__all__}


def test_every_type_in_a_public_signature_can_be_imported_from_a_public_module() -> None:
    """Under the name that the signature has, and that editors show."""
    public = [item for door in DOORS for item in exported(door).items()]
    shown = {(module, name) for door in DOORS for module, each in in_signatures(door) for name in written(each)}
    assert len(shown) > 200
    missing = [at for at in shown if (value := meant(*at)) is not None and (at[1], value) not in public]
    assert sorted(missing) == []


def files() -> list[Path]:
    """The files of the repository, without what tools make."""
    named = (ROOT / name for name in ("Makefile", "LICENSE", ".gitignore", "mkdocs.yml"))
    tops = [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), *named]
    inner = (file for top in ("src", "tests", "docs", "scripts", ".ci") for file in (ROOT / top).rglob("*"))
    return sorted(file for file in [*tops, *inner] if file.is_file() and not _MADE & set(file.parts))


def test_no_file_names_a_local_path_or_a_registry() -> None:
    """Nothing in the repository depends on one machine, or on where packages come from."""
    found = []
    for file in files():
        text = file.read_text(encoding="utf-8", errors="replace")
        if not _LOCAL_PATH.search(text) and not _REGISTRY.search(text.lower()):
            continue  # a line of it has nothing, either
        for number, line in enumerate(text.splitlines(), 1):
            if _LOCAL_PATH.search(line) or _REGISTRY.search(line.lower()):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert found == []
