"""`ToolRegistry`: the tools of a loop."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice, product
from typing import TYPE_CHECKING, Any

from attrs import evolve

from toolloop._public import set_module
from toolloop.errors import BadTool
from toolloop.tools.function import Tool
from toolloop.tools.responses.adapter import AnthropicMessagesToolResponseAdapter, ToolResponseAdapter, check_adapter
from toolloop.tools.sdk_tools import SdkTool, SdkToolset, ServerTools, as_tools

if TYPE_CHECKING:
    from toolloop.machine.values.jsontext import JSON
    from toolloop.machine.values.setup import ToolFacts


_MOST_CHOICES = 2000  # only servers that had the same names in many lists have more


@set_module("toolloop")
class ToolRegistry:
    """An immutable collection of tools, by name, in the given order.

    Args:
        tools: functions made with `@tool`, objects made with `anthropic.beta_tool`, toolsets of the SDK (see
            `toolset`), or the list of a server (see `ServerTools`).
        adapter: makes results from return values; an `AnthropicMessagesToolResponseAdapter` if left out.

    Raises:
        BadTool: an object is not a tool, or two tools have the same name.
        TypeError: `adapter` is not a response adapter.

    Attributes:
        adapter: the object that makes results from return values.

    """

    __slots__ = ("_parts", "_tools", "adapter")

    def __init__(self, tools: Iterable[AnyTools] = (), adapter: ToolResponseAdapter | None = None) -> None:
        """Store the tools."""
        self.adapter: ToolResponseAdapter = (
            AnthropicMessagesToolResponseAdapter() if adapter is None else check_adapter(adapter)
        )
        given: Iterable[AnyTools] = [tools] if isinstance(tools, ServerTools) else tools
        self._parts: tuple[Tool[..., Any] | ServerTools, ...] = tuple(part for each in given for part in _split(each))
        self._tools: dict[str, Tool[..., Any]] = _map_by_name(self._parts)

    @property
    def parts(self) -> tuple[Tool[..., Any] | ServerTools, ...]:
        """The tools, with the list of each server that may change it as one."""
        return self._parts

    @property
    def server_lists(self) -> tuple[ServerTools, ...]:
        """The lists of servers that may change them."""
        return tuple(part for part in self._parts if isinstance(part, ServerTools) and part.may_change)

    @property
    def may_change(self) -> bool:
        """Whether servers may change tools, or what they say of them."""
        return bool(self.server_lists) or any(each.annotations is not None for each in self)

    def renew(self) -> ToolRegistry:
        """Return a registry with the current tools of each server.

        Raises:
            BadTool: a server now has a tool with the name of another one.

        """
        return ToolRegistry(self._parts, self.adapter)

    def as_of(self, facts: Collection[ToolFacts]) -> ToolRegistry:
        """Return a registry with the tools that a loop has from each server; the current ones if they are not known.

        Args:
            facts: those of the loop about its tools. Hints may be stricter than in any list.

        Raises:
            BadTool: as for `renew`.

        """
        if not self.server_lists:
            return self
        then = ToolRegistry((), self.adapter)
        then._parts = self._parts
        own = {part.name for part in self._parts if isinstance(part, Tool)}
        theirs = [each for each in facts if each.name not in own]
        servers = [part for part in self._parts if isinstance(part, ServerTools)]
        chosen = iter(_choose_lists(servers, theirs))
        lists = (next(chosen) if isinstance(part, ServerTools) else [part] for part in self._parts)
        then._tools = _map_by_name(each for tools in lists for each in tools)
        return then

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(self._tools)

    def get(self, name: str) -> Tool[..., Any] | None:
        """Return the tool with a name, or None."""
        return self._tools.get(name)

    def definitions(self) -> list[dict[str, JSON]]:
        """Return new copies of the definitions for `tools`, in order, with the same bytes in each run.

        Raises:
            BadTool: an annotation of a function has no schema.

        """
        return list_definitions(self)

    def only(self, *names: str) -> ToolRegistry:
        """Return a registry with only these tools, in this registry's order.

        Raises:
            BadTool: a name is unknown.

        """
        self._check(names)
        return ToolRegistry((each for each in self if each.name in names), self.adapter)

    def without(self, *names: str) -> ToolRegistry:
        """Return a registry without these tools.

        Raises:
            BadTool: a name is unknown.

        """
        self._check(names)
        return ToolRegistry((each for each in self if each.name not in names), self.adapter)

    def _check(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._tools:
                raise BadTool(f"unknown tool {name!r}; available: {', '.join(self.names) or 'none'}", tool=name)

    def __iter__(self) -> Iterator[Tool[..., Any]]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __repr__(self) -> str:
        return f"<ToolRegistry: {', '.join(self.names) or 'no tools'}>"


def _split(given: AnyTools) -> Sequence[Tool[..., Any] | ServerTools]:
    return [given] if isinstance(given, ServerTools) else as_tools(given)


def _map_by_name(parts: Iterable[Tool[..., Any] | ServerTools]) -> dict[str, Tool[..., Any]]:
    named: dict[str, Tool[..., Any]] = {}
    for each in (tool for part in parts for tool in (tuple(part) if isinstance(part, ServerTools) else [part])):
        if each.name in named:
            raise BadTool(
                f"two tools are named {each.name!r}, but names must be unique. Rename one with "
                "@tool(name=...), or pass a prefix for the tools of an MCP server",
                tool=each.name,
            )
        named[each.name] = each
    return named


# --- the lists of servers that a loop has ---


def _choose_lists(servers: Sequence[ServerTools], facts: Iterable[ToolFacts]) -> list[Sequence[Tool[..., Any]]]:
    """Return the list of each server that a loop has; the current one if that is not known.

    Facts do not say which server a tool is from, and a name may have moved from one to another. So an older list counts
    only if each name of the loop that this server ever had is in it, or in the list that is chosen for another server.
    """
    given, ever = frozenset(facts), [_list_names(each for had in server.known for each in had) for server in servers]
    bare, wanted = _drop_hints(given), [names & _list_names(given) for names in ever]
    options: list[list[frozenset[ToolFacts]]] = []
    for place, server in enumerate(servers):
        sure = wanted[place].difference(*ever[:place], *ever[place + 1 :])
        fitting, current = _list_fitting(server, given, bare, sure), _find_current(server)
        is_only = bool(fitting) and sure == wanted[place]
        options.append(fitting if is_only else [current, *(had for had in fitting if had != current)])

    def rate(chosen: Sequence[frozenset[ToolFacts]]) -> tuple[bool, int, int]:
        tools = [each for had in chosen for each in had]
        names = _list_names(tools)
        older = [place for place, had in enumerate(chosen) if had != _find_current(servers[place])]
        if len(names) < len(tools) or not all(wanted[place] <= names for place in older):
            return False, 0, 0
        return True, -len(_drop_hints(tools) ^ bare), len(given.intersection(tools))

    best = max(islice(product(*options), _MOST_CHOICES), key=rate)
    return [
        server if had == _find_current(server) else server.known[had] for server, had in zip(servers, best, strict=True)
    ]


def _list_fitting(
    server: ServerTools, given: frozenset[ToolFacts], bare: frozenset[ToolFacts], sure: frozenset[str]
) -> list[frozenset[ToolFacts]]:
    """Return the lists of a server that a loop may have, from the newest to the oldest.

    Of those that differ only in hints, it is the one with the most hints of the loop, or else the newest.

    Args:
        server: the server.
        given: the facts of the loop. Its hints may be stricter than in any list.
        bare: the same without hints.
        sure: the names of the loop that only this server had.

    """
    found: dict[frozenset[ToolFacts], frozenset[ToolFacts]] = {}
    for had in reversed(server.known):
        if sure <= _list_names(had) and all(_drop_hints([each]) <= bare for each in had):  # mostly the first one is not
            plain = _drop_hints(had)
            found[plain] = max(found.get(plain, had), had, key=lambda each: len(each & given))
    return [*found.values()]


def _find_current(server: ServerTools) -> frozenset[ToolFacts]:
    return next(reversed(server.known))


def _list_names(facts: Iterable[ToolFacts]) -> frozenset[str]:
    return frozenset(each.name for each in facts)


def _drop_hints(facts: Iterable[ToolFacts]) -> frozenset[ToolFacts]:
    return frozenset(evolve(each, annotations=None) for each in facts)


def list_definitions(tools: Iterable[Tool[..., Any]]) -> list[dict[str, JSON]]:
    """Return the definitions of tools. A toolset has one, at the place of its first member."""
    found: dict[tuple[str, ...], Tool[..., Any]] = {}
    for each in tools:
        toolset, dot, _ = each.name.partition(".")
        found.setdefault((toolset, dot), each)
    return [each.definition() for each in found.values()]


AnyTools = Tool[..., Any] | SdkTool | SdkToolset | ServerTools
Tools = ToolRegistry | Iterable[AnyTools]
