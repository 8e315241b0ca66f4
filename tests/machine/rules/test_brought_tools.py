"""Tools that come with what a person said: recorded, so that nothing outside the journal says whose a tool is."""

from __future__ import annotations

from attrs import evolve

from tests.kit.machine import making as m
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import State
from toolloop.machine.tree import fold, step
from toolloop.machine.values.jsontext import decode, encode
from toolloop.machine.values.setup import ToolFacts, drop_brought


def define(name: str, **more: object) -> str:
    return encode({"name": name, "input_schema": {"type": "object"}, **more})


def list_brought(state: State) -> frozenset[str]:
    return state.root.setup.brought


def make_said(*tools: str, name: str = "s1") -> ev.Said:
    return ev.Said(name, (m.user("also"),), tools=tools)


def tools_of(state: State) -> list[str]:
    return [tool["name"] for tool in decode(state.root.setup.params).get("tools", [])]


def test_what_a_person_brings_joins_the_tools_and_is_that_persons() -> None:
    """Twice in one message counts once: the first definition stays."""
    state = fold([m.make_opened(), make_said(define("where", description="1"), define("where", description="2"))])
    assert (tools_of(state), list_brought(state)) == (["where"], frozenset({"where"}))
    assert state.root.setup.find_definitions()["where"]["description"] == "1"


def test_a_tool_that_the_loop_has_or_had_is_left_as_it_is() -> None:
    """Its own, one of the parameters, and those that a deploy took away."""
    params = encode({"tools": [{"type": "web_search", "name": "search"}, {"type": "nameless"}]})
    gone = ToolFacts("lost", "once", "always", "d9")
    opened = m.make_opened(params=params, gone_tools=(gone,), gone=frozenset({"older"}))
    state = fold([opened, make_said(*map(define, ("once", "search", "lost", "older")))])
    assert (state.root.setup, list_brought(state)) == (opened.setup, frozenset())


def test_a_tool_that_is_taken_out_of_the_parameters_is_nobodys() -> None:
    """If the server defines it later, it is the server's."""
    state = fold([m.make_opened(), make_said(define("where"), define("there"))])
    state = step(state, ev.Changed(encode({"tools": [decode(define("there"))]}), ("tools",)))
    assert list_brought(state) == {"there"}
    state = step(state, ev.Changed(encode({"tools": [decode(define("where"))]}), ("tools",)))
    assert (tools_of(state), list_brought(state)) == (["where"], frozenset())


def test_another_driver_keeps_what_was_brought() -> None:
    state = fold([m.make_opened(), make_said(define("where"))])
    woken = step(state, ev.Woken(evolve(state.root.setup, tools=m.OTHER_TOOLS)))
    assert (tools_of(woken), list_brought(woken)) == (["where"], frozenset({"where"}))
    assert list_brought(step(state, ev.Woken(evolve(state.root.setup, params="{}")))) == frozenset()


def test_a_brought_tool_is_dropped_for_one_of_the_same_name() -> None:
    """The rest of the parameters stays, also what has no name. Tools that were not brought stay, too."""
    params = encode({"model": "m", "tools": [{"type": "nameless"}, {"name": "own"}]})
    setup = step(fold([m.make_opened(params=params)]), make_said(define("where"))).root.setup
    assert drop_brought(setup, {"own"}) is setup
    dropped = drop_brought(setup, {"where", "own"})
    assert (dropped.params, dropped.brought) == (params, frozenset())
    alone = step(fold([m.make_opened(params=encode({"model": "m"}))]), make_said(define("where"))).root.setup
    assert drop_brought(alone, {"where"}).params == encode({"model": "m"})
