"""What errors and logs say: they name only members that the objects in the reader's hands have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolloop
from toolloop import (
    AsyncInbox,
    AsyncToolLoopHandle,
    AsyncToolRunner,
    Completed,
    Error,
    Inbox,
    ToolLoopHandle,
    ToolRunner,
    Yielded,
    testing as kit,
)
from toolloop.stores import SqliteStore, Store
from toolloop.types import AsyncReplyStream, AsyncTurnStream, ReplyStream, TurnStream

SOURCE = Path(toolloop.__file__).parent
HANDLES = (ToolLoopHandle, AsyncToolLoopHandle)
# Whose members the texts of a folder may name: the objects whose methods raise them. A handle's commands are those of
# its `Yielded`. What serves handles and runners alike, or a plain list, names none of either.
READERS: dict[str, tuple[object, ...]] = {
    "inbox": (Inbox, AsyncInbox),
    **dict.fromkeys(("_interface", "_journal"), (*HANDLES, Yielded, Completed, Error)),
    **dict.fromkeys(("_engine", "_drivers", "_handles"), (*HANDLES, Yielded, TurnStream, AsyncTurnStream)),
    "machine": (*HANDLES, Yielded),
    "_runner": (ToolRunner, AsyncToolRunner, ReplyStream, AsyncReplyStream),
    "stores": (Store,),
    "testing": (Store, SqliteStore, kit),  # with its optional members
}
FOLDERS = sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists())
# Names with an owner before the dot, and calls without one: `handle.pending_turn`, `into_result()`, `resume(Stop())`.
_OWNED = re.compile(r"\b(handle|runner|turn)\.(\w+)")
_CALLED = re.compile(r"(?<![\w.@])([a-z_]\w*)\((?:\)|\.\.\.\)|\w+=|[A-Z]\w*\()")
_OWNERS = {"handle": ToolLoopHandle, "runner": ToolRunner, "turn": Yielded}
_OF_OTHERS = {"send", "json_each"}  # a provider's method, and a function of SQLite


def texts(file: Path) -> Iterator[tuple[int, str]]:
    """The strings of a file with their lines, docstrings aside."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
            yield node.lineno, node.value


def misnamed(folder: str) -> list[str]:
    readers = READERS.get(folder, ())
    found = []
    for file in sorted((SOURCE / folder).rglob("*.py")):
        for line, text in texts(file):
            at = f"{file.relative_to(SOURCE)}:{line}"
            owned = _OWNED.findall(text)
            found += [f"{at}: {owner}.{name}" for owner, name in owned if not hasattr(_OWNERS[owner], name)]
            called = set(_CALLED.findall(text)) - _OF_OTHERS
            found += [f"{at}: {name}()" for name in sorted(called) if not any(hasattr(each, name) for each in readers)]
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_messages_name_only_members_that_exist(folder: str) -> None:
    """On the objects that raise them, or on the one that they name with a dot."""
    assert misnamed(folder) == []
