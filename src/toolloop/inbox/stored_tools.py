"""The tools of stored loops as the journal keeps them: names and schemas. They cannot run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import frozen

from toolloop._engine.runtimes import Runtime
from toolloop._interface.config import DEFAULT_CONFIG
from toolloop._requests.params import Secrets
from toolloop.machine.queries import waiting
from toolloop.machine.record.loop import Path, State
from toolloop.machine.values.jsontext import JSON, decode
from toolloop.machine.values.setup import Setup, ToolFacts
from toolloop.tools import Tool, ToolRegistry


class StoredTools:
    """Provide the tools of each loop of a tree from its setup. See `ToolsOfLoops`."""

    def __init__(self, state: State) -> None:
        """Store a tree. Only a driver changes the tools of its root."""
        self._state = state

    @property
    def root(self) -> Runtime:
        """See `ToolsOfLoops`."""
        return _runtime(self._state.root.setup)

    def at(self, state: State, path: Path) -> Runtime | None:
        """See `ToolsOfLoops`."""
        loop = state.at(path)
        return None if loop is None else _runtime(loop.setup)


@frozen
class _StoredSchema:
    """The intake of a tool with a stored schema."""

    _facts: ToolFacts

    def definition(self) -> JSON:
        schema, (toolset, dot, _) = self._facts.input_schema, self._facts.name.partition(".")
        if dot:
            return {"type": toolset}  # a member of a toolset: the API knows it by that
        return {"name": self._facts.name, "input_schema": {"type": "object"} if schema is None else decode(schema)}

    def fit(self, given: Mapping[str, JSON]) -> dict[str, Any]:
        if self._facts.input_schema is None:
            return dict(given)
        try:
            from toolloop.tools.json_schema import JsonSchema  # noqa: PLC0415 - an extra, only for edited inputs

            schema = JsonSchema.of(self._facts.name, "", decode(self._facts.input_schema))
        except ImportError as missing:
            raise ImportError(
                f"an edited input needs jsonschema ({missing}): pip install 'toolloop[inbox]'",
                name=missing.name,
            ) from missing
        return schema.fit(given)


def _runtime(setup: Setup) -> Runtime:
    tools = ToolRegistry([_tool(facts) for facts in setup.tools])
    return Runtime.of(setup, tools, DEFAULT_CONFIG, Secrets())


def _tool(facts: ToolFacts) -> Tool[..., Any]:
    return Tool(
        name=facts.name,
        description="",
        function=_never,
        needs_approval=False,
        effect=facts.effect,
        is_async=False,
        intake=_StoredSchema(facts),
    )


def _never() -> None:
    raise RuntimeError("a stored tool cannot run: only its schema is stored")


def schemas_of(state: State) -> Iterator[tuple[str, JSON]]:
    """Yield the schemas of the tools of waiting calls, by path."""
    for path, call in waiting(state):
        for facts in state.loops[path].setup.tools:
            if facts.name == call.name and facts.input_schema is not None:
                yield "/".join((*path, call.id)), decode(facts.input_schema)
