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
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import toolloop
from scripts.surface import MODULES
from tests.docs.layout.test_surface import HEAVY

SOURCE = Path(toolloop.__file__).parent
DOORS = [f"toolloop.{name}".rstrip(".") for name in MODULES]
LAZY = ["toolloop", "toolloop.inbox", "toolloop.stores"]
NEEDED = "from toolloop import ToolLoopHandle, LoopConfig, tool"
# Of the standard library: each costs as much as ten modules of ours, and no loop needs it to start.
SLOW = (*HEAVY, "asyncio", "concurrent.futures", "email", "http", "importlib.metadata", "random", "socket", "ssl")
# Ours: modules that a loop needs only if its program uses them.
UNASKED = (
    *("_handles.asynchronous", "_runner", "otel", "testing", "stores.memory", "stores.sqlite", "tools.mcp"),
    "history",
)
# Classes whose annotations name what only type checkers import.
UNRESOLVED = {
    *("RecordedRequest", "SubLoop", "Tool", "Verbatim", "verbatim"),
}


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after some code, beyond those it starts with."""
    program = f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*(set(sys.modules) - before))"
    return set(run(program).split())


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def table(package: str) -> dict[str, tuple[str, ...]]:
    """The names of a lazy package, by the modules that define them."""
    origin: dict[str, tuple[str, ...]] = vars(importlib.import_module(package))["_ORIGIN"]
    return origin


def test_a_bare_import_loads_nothing_but_the_door() -> None:
    """`import toolloop` loads two small modules of ours, and not even attrs."""
    loaded = loaded_by("import toolloop")
    assert {"toolloop", "toolloop._names"} == {name for name in loaded if "toolloop" in name}
    assert loaded & {*SLOW, "attr", "attrs", "json", "logging", "inspect", "typing", "re", "collections"} == set()


def test_a_handle_loads_what_every_loop_needs() -> None:
    """Not the async handle, the runners or the stores."""
    loaded = loaded_by(NEEDED)
    assert loaded & set(SLOW) == set()
    assert [name for name in UNASKED if f"toolloop.{name}" in loaded] == []


def test_type_checkers_see_what_a_door_does() -> None:
    """The stub of a lazy package has the names of its table, and the public modules."""
    for door in LAZY:
        module = importlib.import_module(door)
        tree = ast.parse((SOURCE.joinpath(*door.split(".")[1:]) / "__init__.pyi").read_text(encoding="utf-8"))
        read = {
            (node.module, name.name) for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names
        }
        names = {(origin, name) for origin, names in table(door).items() for name in names}
        assert read == names | {(None, name) for name in vars(module).get("_MODULES", ())}
        assert module.__all__ == sorted(name for _, name in names)
        assert dir(module) == sorted(name for _, name in read)


def test_a_name_is_the_same_object_as_in_its_module() -> None:
    """It is found there once, and kept."""
    for door in LAZY:
        module = importlib.import_module(door)
        for origin, names in table(door).items():
            for name in names:
                found = getattr(module, name)
                assert found is getattr(importlib.import_module(origin), name)
                assert vars(module)[name] is found


def test_a_door_lists_its_names_before_they_are_loaded() -> None:
    """For `dir` and a star import."""
    told = run(
        f"import sys, {', '.join(LAZY)}\n"
        f"doors = [sys.modules[name] for name in {LAZY!r}]\n"
        "print([set(door.__all__) - set(dir(door)) for door in doors])\n"
        + "\n".join(f"from {door} import *" for door in LAZY)
        + "\nprint([name for door in doors for name in door.__all__ if name not in globals()])"
    )
    assert told.splitlines() == ["[set(), set(), set()]", "[]"]


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


def test_public_modules_are_there_without_an_import_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """`toolloop.errors.ModelError` works after `import toolloop`."""
    for name in vars(toolloop)["_MODULES"]:
        importlib.import_module(f"toolloop.{name}")
        monkeypatch.delattr(toolloop, name)  # as before the import
        assert getattr(toolloop, name).__name__ == f"toolloop.{name}"
    assert run("import toolloop; print(toolloop.errors.ModelError.__name__)") == "ModelError\n"


def test_the_package_names_its_version() -> None:
    """The installed one, without reading the metadata of the distribution at import."""
    assert toolloop.__version__ == importlib.metadata.version("toolloop")


def test_dir_shows_the_public_names() -> None:
    """Of each public module: the names of `__all__`, and for the package itself the public modules."""
    modules = vars(toolloop)["_MODULES"]
    for door in DOORS:
        module = importlib.import_module(door)
        assert dir(module) == sorted([*module.__all__, *(modules if module is toolloop else ())]), door


def test_a_module_that_cannot_be_imported_says_why() -> None:
    """An error inside a module is not reported as a missing name, and the next access raises it again."""
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
    assert told.split() == ["toolloop.stores.sqlite.store"] * 2 + ["toolloop"]


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


def public_values() -> Iterator[tuple[str, str, Any]]:
    """The public classes and functions, each with its module and its name there."""
    for door in DOORS:
        for name in importlib.import_module(door).__all__:
            value = getattr(importlib.import_module(door), name)
            if inspect.isclass(value) or inspect.isfunction(value):
                yield door, name, value


def test_what_is_public_says_so() -> None:
    """A traceback, a repr and a pickle name a public module that has the name, wherever the file is."""
    for door, name, value in public_values():
        if value.__module__.startswith("toolloop"):
            assert value.__module__ in DOORS, f"{door}.{name} says {value.__module__}"
            assert getattr(importlib.import_module(value.__module__), value.__name__) is value
            assert pickle.loads(pickle.dumps(value)) is value


def test_a_public_name_says_so_before_it_was_imported_there() -> None:
    """What a name shows does not depend on how it was reached."""
    told = run(
        "import toolloop._handles.sync, toolloop._messages.rules, toolloop.tools.responses.response_types as types\n"
        "from toolloop._interface.results import Yielded\n"
        "print(Yielded, toolloop._messages.rules.Problem, types.TextResponse)"
    )
    assert told == (
        "<class 'toolloop.Yielded'> <class 'toolloop.history.Problem'> <class 'toolloop.responses.TextResponse'>\n"
    )


def test_the_hints_of_public_classes_still_resolve() -> None:
    """Though the names in them are those of the module that defines the class."""
    left = {name for _, name, value in public_values() if inspect.isclass(value) and not resolves(value)}
    assert left == UNRESOLVED


def resolves(value: type) -> bool:
    try:
        get_type_hints(value)
    except NameError:
        return False
    return True
