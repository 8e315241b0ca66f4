"""A typed result: the API gets its schema, the answer is read as the class, and the model may correct it once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict

import pydantic
import pytest
from attrs import frozen
from hypothesis import given, strategies as st

from tests.kit.concurrency import either_kind
from tests.kit.each import each
from tests.kit.effort import examples
from tests.kit.loop_trees import make_bare, task, tree_of
from tests.kit.tools import LOOK, look, params
from tests.kit.world import ID, World, open_over_http
from toolloop import LoopConfig, MemoryStore, SqliteStore, ToolLoopHandle, sub_loop
from toolloop.history import check
from toolloop.stores import Store
from toolloop.terminations import InvalidOutput, MaxIterations, NaturalEnd, Refused, StopCondition, Truncated
from toolloop.testing import ScriptedProvider, reply


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


@dataclass
class Line:
    text: str
    amount: int = 1


@frozen
class Page:
    lines: list[Line]
    number: int = 1


class Invoice(pydantic.BaseModel):
    number: Annotated[int, pydantic.Field(ge=1, description="As printed.")]
    lines: list[Line] = []
    due: date | None = None
    kind: Literal["bill", "credit"] = "bill"


class Answer(TypedDict):
    mood: Mood
    invoice: Invoice


class Free(TypedDict):
    more: dict[str, Any]


class Tree(pydantic.BaseModel):
    trees: list[Tree] = []


RIGHT = '{"number":7,"lines":[{"text":"tea","amount":2}],"due":"2026-11-28"}'
INVOICE = Invoice(number=7, lines=[Line("tea", 2)], due=date(2026, 11, 28))
WRONG = '{"number":0,"lines":[{"text":"tea","amount":"two"}]}'
LINE = '{"text":"tea"}'


def world(kind: str, *script: Any, output: Any = Invoice, store: Store | None = None, **config: Any) -> World:
    return World(kind, MemoryStore() if store is None else store, script=script, config={"output": output, **config})


@each(
    ("kind", "text", "value"),
    [
        (Invoice, RIGHT, INVOICE),
        (Line, LINE, Line("tea")),
        (list[Line], f"[{LINE}]", [Line("tea")]),
        (Answer, f'{{"mood":"bad","invoice":{RIGHT}}}', {"mood": Mood.BAD, "invoice": INVOICE}),
        (Line | Invoice, RIGHT, INVOICE),
        (Line | None, "null", None),
        (Page, f'{{"lines":[{LINE}]}}', Page([Line("tea")])),
        (Mood, '"good"', Mood.GOOD),
        (set[int], "[3,1]", {1, 3}),
        (tuple[int, ...], "[3,1]", (3, 1)),
        (int, "5", 5),
        (float, "5", 5.0),
        (bool, "true", True),
        (str, '"a"', "a"),
    ],
)
def test_each_type_comes_back(kind: Any, text: str, value: Any) -> None:
    """As a tool would get it. The schema that is sent has only what the API takes."""
    config = LoopConfig(output=kind)
    handle = ToolLoopHandle(ScriptedProvider([reply(text)]), params=params(), config=config)
    assert handle.run().unwrap().output == value
    sent = json.loads(handle.state.root.setup.params)["output_config"]["format"]
    assert sent["type"] == "json_schema"
    assert all_keys(sent["schema"]) <= KEYS


KEYS = {"type", "properties", "required", "additionalProperties", "items", "minItems", "enum", "const", "anyOf"}
KEYS |= {"$ref", "$defs", "description", "format"}


def all_keys(schema: Any) -> set[str]:
    """The keywords of a schema."""
    found = set(schema)
    for key in ("properties", "$defs"):
        found |= {name for each in schema.get(key, {}).values() for name in all_keys(each)}
    for inner in (*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())):
        found |= all_keys(inner)
    return found


@each(
    ("kind", "path"),
    [
        (dict[str, int], "output"),
        (dict, "output"),
        (Any, "output"),
        (list, r"output\[\]"),
        (tuple[int, str], "output"),
        (Tree, r"output.trees\[\]"),
        (Free, "output.more"),
        (object(), "output is"),
    ],
)
def test_what_the_api_cannot_constrain_is_refused_by_path(kind: Any, path: str) -> None:
    """At construction."""
    with pytest.raises(ValueError, match=f"^{path}"):
        LoopConfig(output=kind)


@either_kind
def test_the_request_asks_for_it_and_the_rest_of_the_parameters_stays(kind: str) -> None:
    """Also after other effort, in another process, and with tools before the answer."""
    one = world(kind, reply(calls=[LOOK]), reply("Here", content=[{"type": "text", "text": RIGHT}]), reply(RIGHT))
    one.params = params(output_config={"effort": "low"})
    peer = one.open()
    assert peer.run().unwrap().output == INVOICE
    peer.handle.update_params(output_config={"effort": "high"})
    peer.handle.follow_up("again")
    assert peer.run().unwrap().output == INVOICE
    formats = [request["output_config"]["format"] for request in one.requests]
    assert [request["output_config"]["effort"] for request in one.requests] == ["low", "low", "high"]
    assert formats[0]["schema"]["$defs"].keys() == {"Invoice", "Line"}
    assert formats == formats[:1] * 3
    peer.handle.update_params(output_config=None)
    peer.handle.follow_up("again")
    peer.run()
    assert one.requests[-1]["output_config"] == {"format": formats[0]}


def test_a_format_of_the_caller_is_refused_beside_it() -> None:
    """At construction, when parameters change, and when the loop is opened."""
    own = {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}
    one = world("sync", reply(RIGHT))
    with pytest.raises(ValueError, match="Leave out your own format"):
        one.open(params=params(**own))
    peer = one.open()
    with pytest.raises(ValueError, match="Leave out your own format"):
        peer.handle.update_params(**own)
    with pytest.raises(ValueError, match="Leave out your own format"):
        one.open(params=params(**own))
    with pytest.raises(ValueError, match="Leave out your own format"):
        sub_loop("kid", "Do it.", params=make_bare(**own), tools=(), config=LoopConfig(output=Line))
    assert peer.run().unwrap().output == INVOICE


def test_a_misfit_is_answered_once_with_what_is_wrong() -> None:
    """The message names each field; the second answer is the result. A further user turn has its own answer."""
    with open_over_http([reply(WRONG), reply(RIGHT), reply("no JSON"), reply(RIGHT)], output=Invoice) as at:
        assert at.handle.run().unwrap().output == INVOICE
        told = at.list_sent()[-1]["content"][0]["text"]
        assert "number: Input should be greater than or equal to 1, got 0" in told
        assert 'lines[0].amount: Input should be a valid integer, got "two"' in told
        at.handle.follow_up("again")
        assert at.handle.run().unwrap().output == INVOICE
        assert "the text is not JSON" in at.list_sent()[-1]["content"][0]["text"]
        assert not check(at.handle.messages)


@either_kind
def test_a_second_misfit_and_one_without_an_iteration_left_end_the_loop(kind: str) -> None:
    """Which says what is wrong, and can go on with another user turn."""
    one = world(kind, reply(WRONG), reply('{"number":-1}'), reply(RIGHT))
    peer = one.open()
    done = peer.run().unwrap()
    assert isinstance(done.termination, InvalidOutput)
    assert (done.termination.problems, done.output) == (
        ("number: Input should be greater than or equal to 1, got -1",),
        None,
    )
    peer.handle.follow_up("again")
    assert peer.run().unwrap().output == INVOICE
    last = world(kind, reply(WRONG), max_iterations=1).open()
    assert isinstance(last.run().unwrap().termination, InvalidOutput)


@each(
    ("answer", "config", "ends"),
    [
        (reply(RIGHT, stop_reason="max_tokens"), {}, Truncated),
        (reply(RIGHT, stop_reason="refusal"), {}, Refused),
        (reply(RIGHT, calls=[LOOK]), {"max_iterations": 1}, MaxIterations),
        (reply(RIGHT), {"stop_when": lambda _: True}, StopCondition),
    ],
)
def test_other_ends_have_no_output(answer: Any, config: dict[str, Any], ends: type) -> None:
    """Though the text would fit."""
    done = world("sync", answer, **config).open().run().unwrap()
    assert (type(done.termination), done.output) == (ends, None)


def test_without_the_class_it_is_json(tmp_path: Any) -> None:
    """A worker has only the stored schema. Who opens the loop with the class gets the object."""
    one = world("sync", reply(RIGHT), store=SqliteStore(tmp_path / "loops.db"))
    one.create(config=LoopConfig(output=Invoice))
    assert one.work() == 1
    assert one.open(config=None, params=None).run().unwrap().output == json.loads(RIGHT)
    assert one.open().run().unwrap().output == INVOICE
    assert one.open(config=LoopConfig(output=Mood)).run().unwrap().output == json.loads(RIGHT)
    copy = one.open().handle.fork()
    copy.follow_up("again")
    assert copy.run().unwrap().output == INVOICE


def test_what_a_person_says_meanwhile_comes_first() -> None:
    """The answer before it is not the result, so it may be anything."""
    one = world("sync", reply("Wait"), reply(RIGHT))
    peer = one.open()
    one.on["request"] = lambda: one.inbox.say(ID, "hurry") if len(one.requests) == 1 else None
    assert peer.run().unwrap().output == INVOICE
    assert one.requests[-1]["messages"][-1]["content"] == "hurry"


def test_a_loop_inside_a_call_has_one_of_its_own() -> None:
    """Its text is the result of the call, after it was corrected."""
    asked = [reply(calls=[task("p")]), reply("all done")]
    kid = sub_loop("kid", "Do a part of it.", params=make_bare(), tools=[look], config=LoopConfig(output=Line))
    tree = tree_of("sync", {"go": asked, "p": [reply('{"text":1}'), reply(LINE)]}, [kid])
    done = tree.make().run().unwrap()
    assert (done.text, done.output) == ("all done", None)
    assert tree.requests[-1]["messages"][-1]["content"][0]["content"] == LINE


@examples(20)
@given(st.lists(st.sampled_from([RIGHT, WRONG, "{}", "[", "null", '{"number":1e400}', '"x"']), max_size=4))
def test_the_result_is_the_first_right_answer_of_two(texts: list[str]) -> None:
    """Whatever the model says, at most two answers are asked for."""
    answers = [*texts, RIGHT, RIGHT]
    handle = ToolLoopHandle(
        ScriptedProvider([reply(text) for text in answers]), params=params(), config=LoopConfig(output=Invoice)
    )
    done = handle.run().unwrap()
    right = next((number for number, text in enumerate(answers[:2], start=1) if text == RIGHT), None)
    assert (done.iterations, done.output) == (right or 2, None if right is None else INVOICE)
    assert isinstance(done.termination, NaturalEnd if right else InvalidOutput)
