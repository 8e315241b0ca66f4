"""The rooms of the package, read from its code: the floor of each, its sentence, and the rooms that it imports.

A room is a folder of `src/toolloop/`, or a file on a floor of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "toolloop"
# From the lowest: a room imports only from lower floors. `tests/docs/layout/test_layers.py` checks it.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("_forks", "_names", "errors", "terminations"),
    ("_public",),
    ("_usage",),
    ("events",),
    ("machine",),
    ("_messages", "prices"),
    ("tools", "providers", "stores"),
    ("_requests",),
    ("compaction",),
    ("_interface",),
    ("_journal", "_web", "rules"),
    ("_engine",),
    ("_drivers",),
    ("_handles",),
    ("_runner", "inbox"),
    ("_worker", "testing", "otel", "_cli"),
    ("dbos",),
    ("acp", "agui"),
)
# They stand outside of the house, as a program of a user does: they import only public names, and no room imports them.
OUTSIDE = FLOORS[-1]
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
NOT_HERE = "Not here:"
_HOLD_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)  # an expression holds no import


def files_of(room: str) -> list[Path]:
    """Return the files of a room, with those of the rooms inside it."""
    folder = SOURCE / room
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]


def inside(room: str) -> list[str]:
    """Return the rooms inside a room, such as `machine/values`."""
    folders = sorted({file.parent for file in files_of(room)} - {SOURCE, SOURCE / room})
    return [folder.relative_to(SOURCE).as_posix() for folder in folders]


def rooms_on(floor: int) -> list[str]:
    """Return the rooms on a floor, each followed by those inside it."""
    return [name for room in FLOORS[floor] for name in (room, *inside(room))]


def imports(file: Path, *, at_top: bool = False, for_types: bool = True) -> tuple[str, ...]:
    """Return the modules that a file imports, with the name imported from them.

    Args:
        file: The file to read.
        at_top: Only those loaded with the file.
        for_types: Also those that only type checkers read.
    """
    return tuple(
        module
        for module, is_at_top, is_for_types in _imports(file)
        if (is_at_top or not at_top) and (for_types or not is_for_types)
    )


@cache  # the tests ask for the same file many times, and parsing takes milliseconds
def _imports(file: Path) -> tuple[tuple[str, bool, bool], ...]:
    """Return the modules: whether each is loaded with the file, and whether only type checkers read it."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    found: list[tuple[str, bool, bool]] = []
    for node, is_for_types in _statements(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{file} imports relatively")
            names = [f"{node.module}.{name.name}" for name in node.names]
        found += [(name, node in tree.body, is_for_types) for name in names]
    return tuple(found)


def _statements(node: ast.AST, *, is_for_types: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _HOLD_STATEMENTS):
            inner = is_for_types or (isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"))
            yield child, inner
            yield from _statements(child, is_for_types=inner)


def imported_rooms(room: str) -> list[str]:
    """Return the rooms that a room, or a room inside one, imports at run time; the lowest floor first."""
    own = room.partition("/")[0]
    modules = {module for file in files_of(room) for module in imports(file, for_types=False)}
    found = {module.split(".")[1] for module in modules if module.startswith("toolloop.")}
    if own in OUTSIDE:  # public names of `toolloop` itself are of no room
        found &= FLOOR.keys()
    if strange := found - FLOOR.keys():
        raise ValueError(f"{room} imports {sorted(strange)}, which are not rooms")
    return [each for each in FLOOR if each in found - {own}]


def sentences(room: str) -> tuple[str, str]:
    """Return what a docstring says of a room: its first line, and its paragraph on what may not be in it, or ''."""
    folder = SOURCE / room
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    first, *more = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").splitlines()
    at = next((at for at, line in enumerate(more) if line.startswith(NOT_HERE)), len(more))
    refused = " ".join("\n".join(more[at:]).partition("\n\n")[0].split())
    return first, refused.removeprefix(NOT_HERE).strip()
