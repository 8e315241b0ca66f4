"""Definitions are the same bytes in each process, although the order of a set differs."""

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
    page: Page | None = None

@dataclasses.dataclass
class Plain:
    words: frozenset = frozenset({"p", "q", "r"})
    nodes: list[Any] = dataclasses.field(default_factory=lambda: [Node()])

@tool(allowed_callers=["direct", "code_execution_20250825"])
def h(a: Plain = Plain(), b: list[Any] = ["p", {"k": 1}]) -> str:
    "Doc."

@tool(needs_approval=True)
def f(
    a: set[str] = {"x", "y", "z"},
    b: "frozenset[int]" = frozenset({3, 1}),
    c: ToolContext | None = None,
    d: Annotated[Node, "a node"] = Node(),
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

@dataclass
class Made:
    words: frozenset[str] = frozenset({"p", "q", "r"})
    model: Model = dataclasses.field(default_factory=Model)

@tool
def g(a: Model = Model(), b: Words = Words({"x", "y", "z"}), c: Made = Made()) -> str:
    "Doc."

registry = ToolRegistry([f, h, g])
from toolloop.machine.values.jsontext import encode
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
        for seed in ("0", "1")
    }
    assert len(texts) == 1
    of_f, of_h, of_g = (
        {name: told.get("default") for name, told in each["input_schema"]["properties"].items()}
        for each in json.loads(texts.pop())
    )
    assert of_f == {"a": ["x", "y", "z"], "b": [1, 3], "d": None, "g": ["red", "s"]}
    assert of_h == {"a": None, "b": ["p", {"k": 1}]}
    assert of_g == {"a": None, "b": None, "c": None}
