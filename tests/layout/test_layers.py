"""The layers of the package: which folder may import which, what the machine may import, and how long a file may be."""

from __future__ import annotations

import ast
import importlib
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import toolloop

SOURCE = Path(toolloop.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
LAYERS = {
    **dict.fromkeys(("errors", "terminations"), 0),
    "events": 1,
    "machine": 2,
    "_messages": 3,
    **dict.fromkeys(("tools", "providers", "stores"), 4),
    "_requests": 5,
    "compaction": 6,
    "_interface": 7,
    "_journal": 8,
    "_engine": 9,
    "_drivers": 10,
    "_handles": 11,
    **dict.fromkeys(("_runner", "otel", "inbox"), 12),
    **dict.fromkeys(("_worker", "testing", "_cli"), 13),
    "dbos": 14,
}
_SILENT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}
IMPURE = {"time", "random", "threading", "logging", "socket", "os", "uuid", "secrets", "asyncio"}


def imports(file: Path, *, at_top: bool = False) -> Iterator[str]:
    """The modules that a file imports, with the name imported from them. `at_top`: only those loaded with it."""
    tree = ast.parse(file.read_text())
    for node in tree.body if at_top else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports relatively"
            yield from (f"{node.module}.{name.name}" for name in node.names)


def dotted(file: Path) -> str:
    return ".".join(("toolloop", *file.relative_to(SOURCE).with_suffix("").parts))


def test_a_file_imports_only_from_its_own_folder_and_from_lower_layers() -> None:
    """No folder imports a public module at the top of the package."""
    for folder, layer in LAYERS.items():
        for file in (SOURCE / folder).rglob("*.py"):
            for module in imports(file):
                root, *below = module.split(".")
                if root == "toolloop":
                    assert below[0] in LAYERS, f"{file}: {module} is a public module of the top"
                    assert below[0] == folder or LAYERS[below[0]] < layer, f"{file}: {module} is not below"


def test_the_imports_in_a_folder_form_few_layers() -> None:
    """At most eight, and no circle: each file stands one layer above the highest file of its folder that it imports."""
    for folder in LAYERS:
        below: dict[str, set[str]] = {}
        for file in sorted((SOURCE / folder).rglob("*.py")):
            if file.name != "__init__.py":
                below[dotted(file)] = {
                    each for module in imports(file, at_top=True) for each in (module, module.rpartition(".")[0])
                }
        height: dict[str, int] = {}
        while rest := below.keys() - height.keys():
            ready = {each for each in rest if not below[each] & rest - {each}}
            assert ready, f"these import each other in a circle: {sorted(rest)}"
            height |= {
                each: 1 + max((height[other] for other in below[each] & height.keys()), default=0) for each in ready
            }
        assert max(height.values()) <= 8, folder


def test_the_machine_is_pure() -> None:
    """Standard library and attrs only; no clock, no randomness, no threads, no logging, no I/O."""
    for file in (SOURCE / "machine").rglob("*.py"):
        roots = {module.split(".")[0] for module in imports(file)}
        assert roots <= (sys.stdlib_module_names - IMPURE) | {"attrs", "toolloop"}, file
        # A moment is a value; asking for the current one is not pure.
        assert not re.search(r"\b(now|today|utcnow)\(", file.read_text("utf-8")), file


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
    """The one exception holds every rule of one loop, and the table of them."""
    most = {SOURCE / "machine" / "machine.py": 420}
    assert {file: count for file in FILES if (count := code_lines(file)) > most.get(file, 400)} == {}


def test_every_public_name_exists() -> None:
    """Each name in `__all__` exists, and is listed once."""
    for module in map(dotted, FILES):
        loaded = importlib.import_module(module.removesuffix(".__init__"))
        public = getattr(loaded, "__all__", [])
        assert [word for word in public if not hasattr(loaded, word)] == [], module
        assert len(set(public)) == len(public), module
