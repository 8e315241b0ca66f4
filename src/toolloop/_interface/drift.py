"""Drift: the differences between a stored loop and the process that drives it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, get_args

from attrs import asdict, frozen

from toolloop.machine.queries import everywhere, list_tools_along
from toolloop.machine.record.journal_events import GrantRevoked
from toolloop.machine.record.loop import Loop, State
from toolloop.machine.values.calls import Status
from toolloop.machine.values.jsontext import JSON, decode, to_canonical
from toolloop.machine.values.setup import Approval, LoopFacts, Setup, ToolFacts

_STRICTNESS = get_args(Approval)
_COMPARED = {
    "tools",
    "gone",
    "gone_secrets",
    "gone_tools",
    "callables",
    "params",
    "limits",
    "members",
}  # compared part by part


@frozen
class Difference:
    """A difference.

    Attributes:
        text: the description.
        is_unsafe: whether a call may now run without an approval that it needed before, or an open call has changed its
            meaning.
        tool: the name of the tool whose calls persons must approve again, as in `list_tools_with_open_calls`; empty if
            there is none. A tool that is missing cannot run, so its calls keep their approvals until it is back.
        missing: the name of a tool that is missing; empty if none is.

    """

    text: str
    is_unsafe: bool = False
    tool: str = ""
    missing: str = ""


def list_tools_with_open_calls(state: State) -> set[str]:
    """Return the names of the tools with open calls. In a nested loop, the names of the outer tools precede them."""
    rounds = ((path, round_) for path, loop in everywhere(state) if (round_ := loop.phase.round) is not None)
    return {
        "/".join((*list_tools_along(state, path), call.name))
        for path, round_ in rounds
        for call in round_.calls
        if call.status is not Status.SETTLED
    }


def find_changes(old: Setup, new: Setup, still_open: Collection[str] = ()) -> Iterator[Difference]:
    """Yield the differences. `still_open`: see `list_tools_with_open_calls`."""
    yield from _compare_loops(old, new, "", still_open)
    params = [{name: to_canonical(value) for name, value in decode(each.params).items()} for each in (old, new)]
    yield from (Difference(f"parameter {name!r} changed") for name in _list_differing(*params))
    config = [{**asdict(each, recurse=False), **asdict(each.limits, recurse=False)} for each in (old, new)]
    yield from (Difference(f"config.{name} changed") for name in _list_differing(*config) if name not in _COMPARED)


def _list_differing(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def _compare_loops(
    old: Setup | LoopFacts, new: Setup | LoopFacts, within: str, still_open: Collection[str]
) -> Iterator[Difference]:
    """Yield the differences in tools and callables, including those of nested loops.

    A tool that is back is compared with what it was before it was gone.
    """
    place = f" of tool {within[:-1]!r}" if within else ""
    for name in sorted(old.callables - new.callables):
        yield _make_difference(f"config.{name}{place} is missing", within[:-1], is_unsafe=name == "on_tool_call")
    yield from (Difference(f"config.{name}{place} is new") for name in sorted(new.callables - old.callables))
    gone, then, now = (
        {within + facts.name: facts for facts in tools} for tools in (old.gone_tools, old.tools, new.tools)
    )
    for name, was in {**gone, **then}.items():
        if name in now:
            yield from _compare_tools(was, now[name], name, still_open)
        elif name in then:
            yield Difference(f"tool {name!r} is missing", is_unsafe=name in still_open, missing=name)
    for name in (name for name in now if name not in then):
        yield Difference(f"tool {name!r} is {'back' if name in gone else 'new'}", tool=name)


def _compare_tools(was: ToolFacts, now: ToolFacts, name: str, still_open: Collection[str]) -> Iterator[Difference]:
    tool, is_open = f"of tool {name!r}", name in still_open
    if _encode_shape(was) != _encode_shape(now):
        yield _make_difference(f"the schema {tool} changed", name, is_unsafe=is_open)
    elif was.digest != now.digest:
        yield Difference(f"the definition {tool} changed")
    if was.approval != now.approval:
        is_weaker = _STRICTNESS.index(now.approval) < _STRICTNESS.index(was.approval)
        text = f"the approval {tool} changed from {was.approval} to {now.approval}"
        yield _make_difference(text, name, is_unsafe=is_weaker)
    if was.effect != now.effect:
        yield _make_difference(f"the effect {tool} changed from {was.effect} to {now.effect}", name, is_unsafe=True)
    if was.annotations != now.annotations:
        given = {} if now.annotations is None else asdict(now.annotations)
        hints = ", ".join(f"{hint} is {value}" for hint, value in given.items()) or "there are none"
        is_other = None in {was.annotations, now.annotations}  # a tool of a server, and one of another kind
        yield Difference(f"the hints {tool} changed: {hints} now", tool=name if is_other else "")
    if (was.diff, was.path, was.secret) != (now.diff, now.path, now.secret):
        yield Difference(f"what is shown of calls {tool} changed")
    if was.inside is not None and now.inside is not None:
        if was.inside.params != now.inside.params:
            yield Difference(f"the parameters {tool} changed")
        yield from _compare_loops(was.inside, now.inside, f"{name}/", still_open)
    elif was.inside is not now.inside:
        text = f"the nested loop {tool} is {'new' if was.inside is None else 'missing'}"
        yield _make_difference(text, name, is_unsafe=is_open)


def list_lost_grants(loop: Loop, new: Setup) -> list[GrantRevoked]:
    """Return the events that revoke the grants of tools whose schema, gate or hints are others in a new setup.

    A tool that has hints, and had none, is no longer one of ours, or an old journal has it.
    """
    was = {facts.name: facts for facts in (*loop.setup.gone_tools, *loop.setup.tools)}
    changed = {
        now.name
        for now in new.tools
        if (old := was.get(now.name)) is not None
        if (old.annotations, old.approval) != (now.annotations, now.approval)
        or _encode_shape(old) != _encode_shape(now)
    }
    return [GrantRevoked(grant.id, via="tools", path=new.path) for grant in loop.grants if grant.tool in changed]


def _make_difference(text: str, tool: str, *, is_unsafe: bool) -> Difference:
    return Difference(text, is_unsafe, tool if is_unsafe else "")


def _encode_shape(facts: ToolFacts) -> str:
    """Return the schema of a tool's input, without its descriptions."""
    return to_canonical(_drop_descriptions(None if facts.input_schema is None else decode(facts.input_schema)))


def _drop_descriptions(schema: JSON) -> JSON:
    """Return a schema without its descriptions. A property named `description` is kept: it is not a text."""
    match schema:
        case dict():
            kept = (name for name, part in schema.items() if name != "description" or not isinstance(part, str))
            return {name: _drop_descriptions(schema[name]) for name in kept}
        case list():
            return [_drop_descriptions(part) for part in schema]
    return schema
