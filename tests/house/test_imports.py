"""What an import loads: a door opens at once, a loop loads what every loop needs, and every name is the one it was."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import toolloop
from tests.house.test_surface import HEAVY

SOURCE = Path(toolloop.__file__).parent
LAZY = ["toolloop", "toolloop.history", "toolloop.providers", "toolloop.stores", "toolloop.tools"]
NEEDED = "from toolloop import ToolLoopHandle, LoopConfig, tool"
# Of the standard library: each costs as much as ten modules of ours, and no loop needs it to start.
SLOW = (*HEAVY, "asyncio", "concurrent.futures", "email", "http", "importlib.metadata", "random", "socket", "ssl")
# Ours: what a loop needs only if its program says so.
UNASKED = (
    *("handle.asynchronous", "handle.apart", "handle.runner", "handle.running", "handle.runner_streams"),
    *("handle.own_history", "handle.parting", "handle.summarizing", "handle.tracing", "history.summarizing"),
    *("history.repair", "history.draft", "history.units", "stores.audit", "stores.memory", "stores.sqlite"),
    *("stores.events", "stores.bodies", "stores.codec", "tools.mcp", "testing", "events", "machine"),
)
# It is about 150: a driver (49 modules), a machine (35), tools (34), what reads a history (16) and a reply (11), and
# the words of a store (3). A module costs half a millisecond before its first line: some more should have a reason.
MOST_MODULES = 155


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after some code, beyond those it starts with."""
    program = f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*(set(sys.modules) - before))"
    return set(run(program).split())


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def table(door: str) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """What a door says to type checkers, and what it does: names by their modules."""
    path = SOURCE.joinpath(*door.split(".")[1:], "__init__.py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    said = {
        str(node.module): sorted(name.name for name in node.names)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
    }
    calls = [node.value for node in tree.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    (done,) = (ast.literal_eval(call.args[1]) for call in calls)
    return said, {module: sorted(names) for module, names in done.items()}


def test_a_bare_import_loads_nothing_but_the_door() -> None:
    """`import toolloop` loads two modules of ours, and not even attrs."""
    loaded = loaded_by("import toolloop")
    assert {"toolloop", "toolloop._doors"} == {name for name in loaded if "toolloop" in name}
    assert loaded & {*SLOW, "attr", "attrs", "json", "logging", "inspect"} == set()


def test_a_handle_loads_what_every_loop_needs() -> None:
    """Not the async handle, the runners, the stores, the audit, summaries; and no module more without a reason."""
    loaded = loaded_by(NEEDED)
    assert loaded & set(SLOW) == set()
    assert [name for name in UNASKED if f"toolloop.{name}" in loaded] == []
    assert len([name for name in loaded if name.partition(".")[0] == "toolloop"]) <= MOST_MODULES


def test_what_a_handle_need_not_load_exists() -> None:
    """A module that has another name now would be looked for in vain."""
    assert [name for name in UNASKED if importlib.util.find_spec(f"toolloop.{name}") is None] == []


@pytest.mark.parametrize("door", LAZY)
def test_type_checkers_see_what_a_door_does(door: str) -> None:
    """The imports that only type checkers run, the table, and `__all__` have the same names from the same modules."""
    said, done = table(door)
    assert said == done
    assert sorted(importlib.import_module(door).__all__) == sorted(name for names in done.values() for name in names)


@pytest.mark.parametrize("door", LAZY)
def test_a_name_is_the_same_object_as_in_its_module(door: str) -> None:
    """It is found there once, and kept."""
    module = importlib.import_module(door)
    for origin, names in table(door)[1].items():
        for name in names:
            found = getattr(module, name)
            assert found is getattr(importlib.import_module(origin), name)
            assert vars(module)[name] is found


@pytest.mark.parametrize("door", LAZY)
def test_a_function_is_no_module_of_its_name(door: str) -> None:
    """`toolloop.history.check` is the function, even where somebody imported the module `check` before."""
    names = [name for names in table(door)[1].values() for name in names]
    inner = f"import {', '.join(table(door)[1])}"
    told = run(f"{inner}\nimport {door} as door, types\nprint(*(type(getattr(door, n)).__name__ for n in {names!r}))")
    assert "module" not in told.split()


@pytest.mark.parametrize("door", LAZY)
def test_a_door_lists_its_names_before_they_are_loaded(door: str) -> None:
    """For `dir` and a star import."""
    told = run(
        f"import {door} as door\nprint(sorted(set(door.__all__) - set(dir(door))))\nprint('__name__' in dir(door))"
    )
    assert told.splitlines() == ["[]", "True"]
    told = run(f"from {door} import *\nimport {door} as door\nprint([n for n in door.__all__ if n not in globals()])")
    assert told.strip() == "[]"


@pytest.mark.parametrize("door", LAZY)
def test_a_wrong_name_is_refused_as_by_any_module(door: str) -> None:
    """With the name of the module, by `getattr` and by `import`."""
    module = importlib.import_module(door)
    with pytest.raises(AttributeError, match=f"module '{door}' has no attribute 'Wrong'") as caught:
        _ = module.Wrong
    assert (caught.value.name, caught.value.obj) == ("Wrong", module)
    with pytest.raises(ImportError, match=f"cannot import name 'Wrong' from '{door}'"):
        exec(f"from {door} import Wrong")
    assert getattr(module, "Wrong", None) is None


def test_the_packages_are_there_without_an_import_of_their_own() -> None:
    """`toolloop.stores.MemoryStore` after `import toolloop`."""
    told = run("import toolloop\nprint(toolloop.stores.MemoryStore.__name__, toolloop.tools.ToolError.__name__)")
    assert told.split() == ["MemoryStore", "ToolError"]


def test_a_module_that_cannot_be_imported_says_why() -> None:
    """An error inside a module is no missing name, and the next one who asks gets it again."""
    told = run(
        "import sys, toolloop\n"
        "sys.modules['toolloop.stores.sqlite'] = None\n"
        "for _ in range(2):\n"
        "    try:\n"
        "        toolloop.SqliteStore\n"
        "    except ImportError as error:\n"
        "        print(error.name)\n"
        "del sys.modules['toolloop.stores.sqlite']\n"
        "print(toolloop.SqliteStore.__module__)"
    )
    assert told.split() == ["toolloop.stores.sqlite"] * 3


def test_threads_may_import_at_once() -> None:
    """Each in another order: all get the same objects, and none waits for ever."""
    told = run(
        "import importlib, threading\n"
        f"doors = {LAZY!r}\n"
        "start, seen = threading.Barrier(8), []\n"
        "def work(at):\n"
        "    start.wait()\n"
        "    found = {}\n"
        "    for door in doors[at % 5:] + doors[:at % 5]:\n"
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


@pytest.mark.parametrize("door", LAZY)
def test_public_classes_and_functions_can_be_pickled(door: str) -> None:
    """By the module that has them, as before."""
    module = importlib.import_module(door)
    for name in module.__all__:
        value: Any = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert pickle.loads(pickle.dumps(value)) is value


def test_values_can_be_pickled_by_a_program_that_loaded_only_the_door() -> None:
    """Whoever unpickles one loads what it needs."""
    data = pickle.dumps(toolloop.Budget(requests=3))
    told = run(f"import toolloop, pickle\nvalue = pickle.loads({data!r})\nprint(value == toolloop.Budget(requests=3))")
    assert told.strip() == "True"


def test_no_class_is_made_by_the_slow_decorator() -> None:
    """`frozen` of the core is `attrs.frozen` at half the price of an import."""
    users = [file for file in SOURCE.rglob("*.py") if file.name != "freezing.py"]
    assert len(users) > len(LAZY)
    for file in users:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module in {"attr", "attrs"}:
                assert "frozen" not in {name.name for name in node.names}, f"{file}: use toolloop.core.freezing.frozen"
