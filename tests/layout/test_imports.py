"""What an import loads: `import toolloop` nothing but itself, a handle only what every loop needs."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
import inspect
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import toolloop
from tests.layout.test_surface import HEAVY

SOURCE = Path(toolloop.__file__).parent
LAZY = ["toolloop", "toolloop.inbox", "toolloop.stores"]
NEEDED = "from toolloop import ToolLoopHandle, LoopConfig, tool"
# Of the standard library: each costs as much as ten modules of ours, and no loop needs it to start.
SLOW = (*HEAVY, "asyncio", "concurrent.futures", "email", "http", "importlib.metadata", "random", "socket", "ssl")
# Ours: modules that a loop needs only if its program uses them.
UNASKED = (
    *("_handles.asynchronous", "_runner", "otel", "testing", "stores.memory", "stores.sqlite", "tools.mcp"),
    "history",
)


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after some code, beyond those it starts with."""
    program = f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*(set(sys.modules) - before))"
    return set(run(program).split())


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def table(package: str) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The names of a lazy package by their modules: as type checkers read them, and as they are imported."""
    path = SOURCE.joinpath(*package.split(".")[1:], "__init__.py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    read = {
        str(node.module): sorted(name.name for name in node.names)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module != package  # else these are the public modules
    }
    origin = vars(importlib.import_module(package))["_ORIGIN"]
    return read, {module: sorted(names) for module, names in origin.items()}


def test_a_bare_import_loads_nothing_but_the_door() -> None:
    """`import toolloop` loads one module of ours, and not even attrs."""
    loaded = loaded_by("import toolloop")
    assert {"toolloop"} == {name for name in loaded if "toolloop" in name}
    assert loaded & {*SLOW, "attr", "attrs", "json", "logging", "inspect"} == set()


def test_a_handle_loads_what_every_loop_needs() -> None:
    """Not the async handle, the runners or the stores."""
    loaded = loaded_by(NEEDED)
    assert loaded & set(SLOW) == set()
    assert [name for name in UNASKED if f"toolloop.{name}" in loaded] == []


def test_type_checkers_see_what_a_door_does() -> None:
    """The imports that only type checkers run, the table, and `__all__` have the same names from the same modules."""
    for door in LAZY:
        said, done = table(door)
        assert said == done
        assert sorted(importlib.import_module(door).__all__) == sorted(
            name for names in done.values() for name in names
        )


def test_a_name_is_the_same_object_as_in_its_module() -> None:
    """It is found there once, and kept."""
    for door in LAZY:
        module = importlib.import_module(door)
        for origin, names in table(door)[1].items():
            for name in names:
                found = getattr(module, name)
                assert found is getattr(importlib.import_module(origin), name)
                assert vars(module)[name] is found


def test_a_door_lists_its_names_before_they_are_loaded() -> None:
    """For `dir` and a star import."""
    for door in LAZY:
        told = run(
            f"import {door} as door\nprint(sorted(set(door.__all__) - set(dir(door))))\n"
            f"from {door} import *\nprint([n for n in door.__all__ if n not in globals()])"
        )
        assert told.splitlines() == ["[]", "[]"]


def test_a_wrong_name_is_refused_as_by_any_module() -> None:
    """With the name of the module, by `getattr` and by `import`."""
    for door in LAZY:
        module = importlib.import_module(door)
        with pytest.raises(AttributeError, match=f"module '{door}' has no attribute 'Wrong'") as caught:
            _ = module.Wrong
        assert (caught.value.name, caught.value.obj) == ("Wrong", module)
        with pytest.raises(ImportError, match=f"cannot import name 'Wrong' from '{door}'"):
            exec(f"from {door} import Wrong")
        assert getattr(module, "Wrong", None) is None


def test_public_modules_are_there_without_an_import_of_their_own() -> None:
    """`toolloop.errors.ModelError` works after `import toolloop`."""
    modules = sorted(vars(toolloop)["_MODULES"])
    told = run(f"import toolloop\nfor name in {modules!r}: print(getattr(toolloop, name).__name__)")
    assert told.split() == [f"toolloop.{module}" for module in modules]


def test_the_package_names_its_version() -> None:
    """The installed one, without reading the metadata of the distribution at import."""
    assert toolloop.__version__ == importlib.metadata.version("toolloop")


def test_dir_shows_public_names_only() -> None:
    """The names of `__all__` and the public modules."""
    told = run("import toolloop\nprint(*dir(toolloop))")
    assert [name for name in told.split() if name.startswith("_") or name == "TYPE_CHECKING"] == []


def test_a_module_that_cannot_be_imported_says_why() -> None:
    """An error inside a module is no missing name, and the next one who asks gets it again."""
    told = run(
        "import sys, toolloop\n"
        "sys.modules['toolloop.stores.sqlite.store'] = None\n"
        "for _ in range(2):\n"
        "    try:\n"
        "        toolloop.SqliteStore\n"
        "    except ImportError as error:\n"
        "        print(error.name)\n"
        "del sys.modules['toolloop.stores.sqlite.store']\n"
        "print(toolloop.SqliteStore.__module__)"
    )
    assert told.split() == ["toolloop.stores.sqlite.store"] * 3


def test_threads_may_import_at_once() -> None:
    """Each in another order: all get the same objects, and none waits for ever."""
    told = run(
        "import importlib, threading\n"
        f"doors = {LAZY!r}\n"
        "start, seen = threading.Barrier(8), []\n"
        "def work(at):\n"
        "    start.wait()\n"
        "    found = {}\n"
        "    for door in doors[at % 2:] + doors[:at % 2]:\n"
        "        module = importlib.import_module(door)\n"
        "        names = sorted(module.__all__, reverse=at % 2)\n"
        "        found.update({(door, name): id(getattr(module, name)) for name in names})\n"
        "    seen.append(found)\n"
        "threads = [threading.Thread(target=work, args=[at]) for at in range(8)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "print(len(seen), all(each == seen[0] for each in seen))"
    )
    assert told.split() == ["8", "True"]


def test_public_classes_and_functions_can_be_pickled() -> None:
    """By the module that has them, as before."""
    for door in LAZY:
        module = importlib.import_module(door)
        for name in module.__all__:
            value: Any = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                assert pickle.loads(pickle.dumps(value)) is value
