"""The rooms of the package: what each holds and imports, what the machine may import, and how long a file may be."""

from __future__ import annotations

import ast
import importlib
import io
import re
import sys
import tokenize
from itertools import product
from pathlib import Path
from typing import get_args

import toolloop
from scripts.rooms import FLOOR, OUTSIDE, files_of, imports
from scripts.surface import DOORS as PUBLIC, MODULES
from toolloop._interface.loop_params import may_be_brought
from toolloop.acp import questions as acp_questions
from toolloop.agui import conversation
from toolloop.agui.visit import GOING
from toolloop.inbox.shown.words import PAST
from toolloop.inbox.watching import AT_REST
from toolloop.machine.queries import LoopStatus

SOURCE = Path(toolloop.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
ROOMS = sorted({file.parent for file in FILES})
# What only names other modules' parts, and so is of no floor.
DOORS = {"__init__", "__main__", "_pytest", "history", "responses", "types"}
_SILENT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}
PURE = {
    *(
        "__future__",
        "bisect",
        "collections",
        "decimal",
        "enum",
        "functools",
        "hashlib",
        "itertools",
        "json",
        "math",
        "operator",
        "re",
    ),
    *("datetime", "types", "typing", "unicodedata"),
}


def dotted(file: Path) -> str:
    return ".".join(("toolloop", *file.relative_to(SOURCE).with_suffix("").parts))


def room_of(module: str) -> str:
    """The room, or the file on a floor of its own, that a module of ours is in."""
    return module.split(".")[1]


def test_all_files_are_on_a_floor() -> None:
    """Each folder and file at the top of the package, but for those that only hand out names."""
    tops = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()} - {"__pycache__", "py"}
    assert {top for top in tops if not top.startswith("py.")} - DOORS == FLOOR.keys()


def test_a_file_imports_only_from_its_own_room_and_from_lower_floors() -> None:
    """No room imports a module at the top of the package that only hands out names."""
    for file in FILES:
        room = room_of(dotted(file))
        if room in DOORS or room in OUTSIDE:
            continue
        for module in imports(file, for_types=room != "events"):
            if module.split(".")[0] == "toolloop":
                below = room_of(module)
                assert below in FLOOR, f"{file}: {module} only hands out names"
                assert below == room or FLOOR[below] < FLOOR[room], f"{file}: {module} is not below"


# What else the rooms outside of the house import, and why it is not public.
NOT_PUBLIC = {
    "toolloop._public": "hands out their own names as public ones; a program has no need to",
    "toolloop._web": "checks of HTTP requests, which a program leaves to its framework and proxy: they know no loops",
}


def test_rooms_outside_of_the_house_are_made_of_public_names() -> None:
    """They show that a program can have a front end of its own. No room needs them."""
    found = {(room, module) for room in OUTSIDE for file in files_of(room) for module in imports(file)}
    ours = {(room, module) for room, module in found if module.split(".")[0] == "toolloop"}
    inner = {module for room, module in ours if not module.startswith(f"toolloop.{room}.") and not is_public(module)}
    assert {module.rpartition(".")[0] for module in inner} == NOT_PUBLIC.keys()
    house = [file for file in FILES if room_of(dotted(file)) not in OUTSIDE]
    assert [file for file in house for room in OUTSIDE if reaches(file, SOURCE / room)] == []


def test_what_they_repeat_is_what_the_house_says() -> None:
    """Names of statuses, words for decisions, and which tools of a client the API takes."""
    assert set(GOING) == {*get_args(LoopStatus)} - set(AT_REST)
    assert acp_questions._PAST == PAST
    schemas = [{"type": "object"}, {"type": "string"}, {"type": "object", "properties": []}, {}, "object"]
    for name, schema in product(["a", "a" * 64, "a" * 65, "a b", "é", ""], schemas):
        definition = {"name": name, "description": "d", "input_schema": schema}
        assert conversation._is_taken_by_the_api(name, schema) == may_be_brought(definition), definition


def is_public(module: str) -> bool:
    """Whether an import is of a public module, or of a name that one lists."""
    door, _, name = module.rpartition(".")
    return module in PUBLIC or (door in PUBLIC and name in importlib.import_module(door).__all__)


def test_errors_ends_and_events_need_only_attrs() -> None:
    """They define what is public, and load nothing of ours but each other and the way to hand out names."""
    for_types = {module for module in imports(SOURCE / "events.py") if module.startswith("toolloop.machine")}
    assert for_types == {f"toolloop.machine.{name}" for name in ("Loop", "Path", "State")}
    for name in ("errors", "terminations", "events", "_names", "_public", "_usage"):
        roots = {module.split(".")[0] for module in imports(SOURCE / f"{name}.py", for_types=False)}
        assert roots <= sys.stdlib_module_names | {"attrs", "toolloop"}, name


def test_a_room_is_small() -> None:
    """At most fifteen files, and at most six floors of imports between them, without a circle."""
    for room in ROOMS:
        files = [file for file in room.glob("*.py") if file.name != "__init__.py"]
        assert len(files) <= 15, room
        below = {
            dotted(file): {
                each for module in imports(file, at_top=True) for each in (module, module.rpartition(".")[0])
            }
            for file in files
        }
        height: dict[str, int] = {}
        while rest := below.keys() - height.keys():
            ready = {each for each in rest if not below[each] & rest - {each}}
            assert ready, f"these import each other in a circle: {sorted(rest)}"
            height |= {
                each: 1 + max((height[other] for other in below[each] & height.keys()), default=0) for each in ready
            }
        assert max(height.values(), default=0) <= 6, room


def test_nothing_in_a_room_imports_in_a_circle() -> None:
    """A room has files and rooms inside it: of two of them, one is above the other. Late imports count, too."""
    for outer in ROOMS:
        parts = [path for path in outer.iterdir() if path in ROOMS or (path.suffix == ".py" and path.stem[:2] != "__")]
        below = {
            part: {other for other in parts if other != part and any(reaches(file, other) for file in files_in(part))}
            for part in ([] if outer == SOURCE else parts)
        }
        while free := [part for part, needed in below.items() if not needed & below.keys()]:
            for part in free:
                del below[part]
        assert below == {}


def files_in(part: Path) -> list[Path]:
    return [part] if part.suffix else sorted(part.rglob("*.py"))


def reaches(file: Path, part: Path) -> bool:
    prefix = ".".join(("toolloop", *part.relative_to(SOURCE).with_suffix("").parts, ""))
    return any(f"{module}.".startswith(prefix) for module in imports(file))


def test_values_are_below_the_record_and_the_record_below_the_rules() -> None:
    """The rules know neither the table of transitions nor the tree, which stand beside these rooms."""
    floors = [SOURCE / "machine" / name for name in ("values", "record", "rules", "machine.py")]
    for at, part in enumerate(floors):
        for file in files_in(part):
            assert not any(reaches(file, above) for above in floors[at + 1 :]), file


def test_each_room_says_what_is_in_it_and_what_may_not_enter() -> None:
    """In the docstring of its `__init__`: a sentence, and a line that begins with "Not here"."""
    for room in ROOMS:
        assert (room / "__init__.py").exists(), room
        if room != SOURCE:
            said = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
            assert re.match(r"[A-Z][^\n]+\.\n(.*\n)*?Not here: [^\n]+\.$", said, re.MULTILINE), room


def test_private_rooms_are_private_by_name() -> None:
    """A folder or file at the top without an underscore is a public module."""
    public = {name.split(".")[0] for name in MODULES if name}
    tops = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert {top for top in tops if not top.startswith("_")} == public


def test_the_machine_is_pure() -> None:
    """Standard library and attrs only; no clock, no randomness, no threads, no logging, no I/O."""
    for file in (SOURCE / "machine").rglob("*.py"):
        roots = {module.split(".")[0] for module in imports(file)}
        assert roots <= PURE | {"attrs", "toolloop"}, file
        # A moment is a value; asking for the current one is not pure.
        assert not re.search(r"\b(now|today|utcnow|open)\(", file.read_text("utf-8")), file


def code_lines(file: Path) -> int:
    """The lines that hold code: without docstrings, comments and blank lines."""
    source = file.read_text(encoding="utf-8")
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            docstrings |= {*range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)}
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _SILENT:
            code |= {*range(token.start[0], token.end[0] + 1)}
    return len(code - docstrings)


def test_no_file_has_more_than_400_lines_of_code() -> None:
    """No file is an exception."""
    long = [file for file in FILES if len(file.read_text(encoding="utf-8").splitlines()) > 400]
    assert {file: count for file in long if (count := code_lines(file)) > 400} == {}


def test_every_public_name_exists() -> None:
    """Each name in `__all__` exists, and is listed once."""
    for module in map(dotted, FILES):
        loaded = importlib.import_module(module.removesuffix(".__init__"))
        public = getattr(loaded, "__all__", [])
        assert [word for word in public if not hasattr(loaded, word)] == [], module
        assert len(set(public)) == len(public), module


def test_each_folder_of_the_tests_has_a_line_in_their_readme_and_at_most_25_files() -> None:
    tests = Path(__file__).parents[2]
    page = (tests / "README.md").read_text(encoding="utf-8")
    folders = {folder for folder in tests.rglob("*") if folder.is_dir() and any(folder.glob("*.py"))}
    assert [folder.name for folder in folders if folder.parent == tests and f"`{folder.name}/`" not in page] == []
    assert {folder.name: count for folder in folders if (count := len([*folder.glob("*.py")])) > 25} == {}


def test_what_their_readme_calls_exists_in_the_kit() -> None:
    tests = Path(__file__).parents[2]
    kit = "".join(path.read_text(encoding="utf-8") for path in (tests / "kit").glob("*.py"))
    words = re.findall(r"`(?:\w+\.)?(\w+)\(", (tests / "README.md").read_text(encoding="utf-8"))
    assert len(words) > 5
    assert [word for word in words if not re.search(rf"(?:def|class) {word}\b", kit)] == []
