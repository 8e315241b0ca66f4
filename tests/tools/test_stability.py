"""Definitions are the same bytes from run to run, whatever the order of a set."""

from __future__ import annotations

import json
import os
import subprocess
import sys

PROGRAM = """
import dataclasses, enum, sys
from typing import Annotated, Any, Literal, TypedDict
import attrs
from toolloop.tools import ToolContext, ToolRegistry, tool

Colour = enum.Enum("Colour", {"RED": "red", "TWO": 2})

class Page(TypedDict):
    kinds: set[Literal["x", "y", "z"]]

@attrs.define
class Node:
    kids: "list[Node]" = attrs.Factory(list)
    words: frozenset[str] = frozenset({"p", "q", "r"})
    sets: list[frozenset[str]] = [frozenset({"b", "a"})]
    page: Page | None = None

@dataclasses.dataclass
class Plain:
    words: frozenset = frozenset({"p", "q", "r"})
    nodes: list[Any] = dataclasses.field(default_factory=lambda: [{"n": {"x", "y", "z"}}, Node()])

@tool(allowed_callers={"direct", "code_execution_20250825", "code_execution_20260120"})
def h(a: Plain = Plain(), b: list[Any] = [Plain(), {"k": {"x", "y", "z"}}]) -> str:
    "Doc."

@tool(needs_approval=True)
def f(
    a: set[str] = {"x", "y", "z"},
    b: "frozenset[int]" = frozenset({3, 1}),
    c: ToolContext | None = None,
    d: Annotated[Node, "a node"] = Node(),
    e: set[frozenset[str]] = frozenset({frozenset({"k", "l"}), frozenset({"m"}), frozenset()}),
    g: set[Colour | Literal["s", 1, True]] = {"s", Colour.RED},
) -> str:
    "Doc."

registry = ToolRegistry([f, h])
heavy = {"pydantic", "anthropic", "cattrs", "docstring_parser", "httpx2", "anyio", "sqlite3"} & sys.modules.keys()
assert not heavy, heavy

from pydantic import BaseModel, RootModel
from pydantic.dataclasses import dataclass

class Words(RootModel[set[str]]): ...

class Model(BaseModel):
    words: set[str] = {"p", "q", "r"}
    lists: list[frozenset[str]] = [frozenset({"b", "a"})]

@dataclass
class Made:
    words: frozenset[str] = frozenset({"p", "q", "r"})
    model: Model = dataclasses.field(default_factory=Model)

@attrs.define
class Holder:
    model: Model = Model()

@tool
def g(a: Model = Model(), b: Words = Words({"x", "y", "z"}), c: Made = Made(), d: list[Made] = [Made()],
      e: Holder = Holder()) -> str:
    "Doc."

registry = ToolRegistry([f, h, g])
from toolloop.core.jsontext import encode
print(encode(registry.definitions()))
assert "anthropic" not in sys.modules
"""


def test_decorating_imports_neither_pydantic_nor_anthropic_and_definitions_are_the_same_from_run_to_run() -> None:
    texts = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(texts) == 1
    of_f, of_h, of_g = (
        {name: told.get("default") for name, told in each["input_schema"]["properties"].items()}
        for each in json.loads(texts.pop())
    )
    assert of_f == {
        "a": ["x", "y", "z"],
        "b": [1, 3],
        "d": {"kids": [], "words": ["p", "q", "r"], "sets": [["a", "b"]], "page": None},
        "e": [["k", "l"], ["m"], []],
        "g": ["red", "s"],
    }
    plain = {"words": ["p", "q", "r"], "nodes": [{"n": ["x", "y", "z"]}, of_f["d"]]}
    assert of_h == {"a": plain, "b": [plain, {"k": ["x", "y", "z"]}]}
    model = {"words": ["p", "q", "r"], "lists": [["a", "b"]]}
    made = {"words": ["p", "q", "r"], "model": model}
    assert of_g == {"a": model, "b": ["x", "y", "z"], "c": made, "d": [made], "e": {"model": model}}
