"""The cost of loops: a fact of each request, in every way in which a loop lives on; and the budget for it."""

from __future__ import annotations

from decimal import Decimal
from itertools import count
from typing import Any

import pytest
from attrs import define, field
from hypothesis import given, strategies as st

from tests.kit.concurrency import sync_wire
from tests.kit.effort import examples
from tests.kit.support import expect_completed, expect_error
from toolloop import (
    Budget,
    Completed,
    Cost,
    Error,
    Inbox,
    LoopConfig,
    MemoryStore,
    Stop,
    ToolContext,
    ToolLoopHandle,
    sub_loop,
    tool,
)
from toolloop.compaction import Summarize
from toolloop.errors import ModelError, UnpricedModel
from toolloop.events import TextDelta
from toolloop.machine.record import journal_events as ev
from toolloop.prices import Price
from toolloop.stores.codec import decode_event
from toolloop.terminations import BudgetExceeded, NaturalEnd
from toolloop.testing import ScriptedProvider, Streamed, call, fault, reply

MILLION = {"input_tokens": 1_000_000}


def prices(**dollars: float) -> dict[str, Price]:
    """Prices of a million tokens by model, for input and output alike."""
    return {model: Price(input=price, output=price) for model, price in dollars.items()}


def params(model: str = "outer", **more: Any) -> dict[str, Any]:
    return {"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "Go"}], **more}


def made(script: Any, tools: Any = (), *, model: str = "outer", **config: Any) -> ToolLoopHandle:
    return ToolLoopHandle(ScriptedProvider(script), params=params(model), tools=tools, config=LoopConfig(**config))


HELPER = sub_loop("helper", "Help.", params={"model": "inner", "max_tokens": 9})
HELP: dict[str, Any] = {"calls": [call("helper", {"prompt": "Do it"})]}


# --- any life --------------------------------------------------------------------------------------------------------


@define
class Life:
    """A loop, and what its requests have cost by an account of its own.

    Attributes:
        version: the price of a million tokens of the outer loop; that of the inner loop is ten times that.
        turn: what the next replies of the outer loop are.

    """

    store: MemoryStore = field(factory=MemoryStore)
    version: int = 1
    tokens: int = 0
    dollars: Decimal = Decimal(0)
    turn: list[Any] = field(factory=list)
    handle: ToolLoopHandle = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.handle = ToolLoopHandle.open(self.store, "0", **self.parts(), params=params())

    def parts(self) -> dict[str, Any]:
        config = LoopConfig(prices=prices(outer=self.version, inner=10 * self.version), max_iterations=None)
        return {"provider": ScriptedProvider(self.answer), "tools": [HELPER], "config": config}

    def answer(self, body: dict[str, Any]) -> Any:
        inner = body["model"] == "inner"
        said = reply("helped") if inner or not self.turn else self.turn.pop()
        if isinstance(said, Exception):
            return said
        self.tokens += 1
        self.dollars += Decimal(self.tokens * self.version * (10 if inner else 1)) / 1_000_000
        return {**said, "usage": {"input_tokens": self.tokens}}

    def do(self, what: str) -> None:
        match what:
            case "sleep":
                loop_id = self.handle.loop_id
                self.handle.close()
                self.version += 1
                self.handle = ToolLoopHandle.open(self.store, loop_id, **self.parts())
            case "fork":
                self.handle = self.handle.fork(loop_id=str(self.tokens + 1000 * self.version))
                self.do("say")  # it is stored then
            case "snapshot":
                snapshot = self.handle.snapshot()
                self.version += 1
                self.store = MemoryStore()
                self.handle = ToolLoopHandle.restore(snapshot, **self.parts(), store=self.store)
                self.do("say")
            case "fail":
                self.turn = [reply("again"), ModelError("busy", retryable=True)]
                expect_error(self.say())
                self.handle.retry()
                expect_completed(self.handle.run())
            case _:
                self.turn = [reply("done"), reply(**HELP)] if what == "child" else [reply("done")]
                expect_completed(self.say())

    def say(self) -> Any:
        self.handle.say("more")
        return self.handle.run()


def facts(store: MemoryStore, loop_id: str) -> Cost:
    """The sum of the costs in the events of a journal."""
    total = Cost()
    for event in map(decode_event, store.load(loop_id).entries):
        match event:
            case ev.Adopted():
                total += event.state.root.total_usage.cost or Cost()
            case ev.Replied():
                total = sum(event.costs, total)
    return total


@examples(40)
@given(st.lists(st.sampled_from(["say", "child", "fail", "sleep", "fork", "snapshot"]), max_size=8))
def test_the_cost_of_any_life_is_the_sum_of_its_requests(steps: list[str]) -> None:
    """Each by the prices when it was answered, whatever came before and after."""
    life = Life()
    expect_completed(life.handle.run())
    for step in steps:
        life.do(step)
    cost = life.handle.total_usage.cost
    assert cost == Cost(life.dollars) == facts(life.store, life.handle.loop_id)
    assert sum((entry.cost or Cost() for entry in life.handle.usage_log), Cost()) == cost
    shown = Inbox(life.store).show(life.handle.loop_id)["cost"]
    assert shown == {"dollars": f"{life.dollars:f}", "is_partial": False}
    life.handle.close()


# --- what counts -----------------------------------------------------------------------------------------------------


def test_an_advisor_costs_its_own_price() -> None:
    """The parts of a reply are priced by the models that they name; one without a price makes the cost partial."""
    iterations = [MILLION, {**MILLION, "type": "advisor_message", "model": "wise"}, {**MILLION, "model": "new"}]
    handle = made([reply("so", usage={"iterations": iterations})], prices=prices(outer=1, wise=30))
    (entry,) = expect_completed(handle.run()).usage_log
    assert entry.cost == Cost(Decimal(31), is_partial=True, unpriced=("new",))
    assert [(part.model, str(part.usage.cost)) for part in entry.by_model] == [
        ("outer", "$1.00"),
        ("wise", "$30.00"),
        ("new", "at least $0.00"),
    ]


def test_without_prices_nothing_has_a_cost() -> None:
    """Neither the log nor the view."""
    handle = made([reply("so")])
    (entry,) = expect_completed(handle.run()).usage_log
    assert (entry.cost, handle.total_usage.cost, handle.view()["cost"]) == (None, None, None)


def test_a_request_that_was_cut_costs_at_least_what_its_start_said() -> None:
    """The rest is unknown."""
    held = Streamed(reply("word " * 60, usage={"input_tokens": 1_000_000, "output_tokens": 900}), hold=5)
    with sync_wire([held], prices={"claude-opus-*": Price(input=7, output=0)}) as (handle, _):
        with handle.stream_turn() as stream:
            for event in stream:
                if isinstance(event, TextDelta):
                    handle.resume(Stop("enough"))
                    held.release()
        assert str(expect_completed(stream.turn).total_usage.cost) == "at least $7.00"


def test_a_stream_that_broke_costs_what_its_start_said() -> None:
    """Each try is paid: a loop with a budget does not try for ever."""
    usage = {"input_tokens": 1_000_000, "output_tokens": 900}
    broken = Streamed(reply("word " * 60, usage=usage), end=6, fault=fault(529))
    given: dict[str, Any] = {"prices": {"claude-opus-*": Price(input=7, output=0)}, "budget": Budget(cost=10)}
    with sync_wire([broken, broken, broken], **given) as (handle, _):
        for spent in ("at least $7.00", "at least $14.00"):
            with handle.stream_turn() as stream:
                list(stream)
            assert isinstance(stream.turn, Error)
            assert str(handle.total_usage.cost) == spent
            handle.retry()
        assert expect_completed(handle.next_turn()).termination == BudgetExceeded("cost", 10, Decimal(14))


def test_a_request_that_was_cut_before_its_start_may_have_cost_something() -> None:
    """Nothing of it is known."""
    with sync_wire([Streamed(reply("so"), hold=0)], prices=prices(none=1), timeout=0.1) as (handle, _):
        with handle.stream_turn() as stream:
            list(stream)
        assert expect_completed(stream.turn).total_usage.cost == Cost(is_partial=True)


def test_a_reply_that_cannot_be_read_has_cost_what_it_says() -> None:
    """And one that says nothing may have cost anything."""
    usage = {"input_tokens": 1_000_000, "output_tokens": 1_000_000}
    cut = {"model": "outer", "content": [{"type": "text"}], "stop_reason": "end_turn", "usage": usage}
    for body, cost in ((cut, Cost(Decimal(2))), ({**cut, "usage": "lost"}, Cost(is_partial=True))):
        handle = made([body, reply("so", usage=MILLION)], prices=prices(outer=1))
        expect_error(handle.run())
        assert handle.total_usage.cost == cost
        handle.retry()
        assert expect_completed(handle.run()).total_usage.cost == cost + Cost(Decimal(1))
        assert [each.is_partial for each in handle.usage_log] == [cost.is_partial, False]


@given(
    st.sampled_from(["input_tokens", "output_tokens", "cache_read_input_tokens"]),
    st.integers(max_value=-1) | st.integers(2**64, 2**70) | st.text(max_size=3) | st.booleans() | st.floats(0, 9),
)
@examples(30)
def test_counts_that_are_none_make_a_cost_partial(name: str, value: Any) -> None:
    """They count zero. Null and a missing count are zero to the API, too."""
    nested = {"iterations": [{name: value}]}
    for usage, is_partial in (({name: value}, True), (nested, True), ({name: None}, False), ({}, False)):
        handle = made([reply("so", usage={"input_tokens": 3, **usage})], prices=prices(outer=1))
        (entry,) = expect_completed(handle.run()).usage_log
        assert entry.cost is not None
        assert (entry.cost.is_partial, entry.is_partial) == (is_partial, is_partial)


def test_summaries_and_tools_that_drive_loops_count() -> None:
    """A loop in a tool has prices of its own; without prices the sum is the least."""

    def drive(context: ToolContext, model: str, **config: Any) -> str:
        inner = ToolLoopHandle(
            ScriptedProvider([reply("helped", usage=MILLION)]),
            params=params(model),
            context=context,
            config=LoopConfig(**config),
        )
        return str(inner.run().text)

    @tool
    def priced(context: ToolContext) -> str:
        """Drive a loop with prices."""
        return drive(context, "inner", prices=prices(inner=10))

    @tool
    def unpriced(context: ToolContext) -> str:
        """Drive a loop without prices."""
        return drive(context, "inner")

    def answer(body: dict[str, Any]) -> Any:
        if body["model"] == "small":
            return reply("A summary", usage=MILLION)
        return reply("done") if next(rounds) == 4 else reply(calls=[call("priced")])

    rounds = count()
    compaction = Summarize(keep_last=1, at_tokens=1, params={"model": "small"})
    handle = made(answer, [priced, unpriced], prices=prices(outer=0, small=100), compaction=compaction)
    log = expect_completed(handle.run()).usage_log
    assert {(entry.model, entry.kind): str(entry.cost) for entry in log} == {
        ("outer", "reply"): "$0.00",
        ("inner", "reply"): "$10.00",
        ("small", "summary"): "$100.00",
    }
    assert sum((entry.cost or Cost() for entry in log), Cost()) == handle.total_usage.cost

    handle = made([reply(calls=[call("unpriced")], usage=MILLION), reply("done")], [unpriced], prices=prices(outer=1))
    assert str(expect_completed(handle.run()).total_usage.cost) == "at least $1.00"


# --- a budget --------------------------------------------------------------------------------------------------------


def test_no_request_begins_once_the_cost_reached_the_budget() -> None:
    """The last one may pass it. A child counts, and `extend` goes on."""
    script = [reply(**HELP, usage=MILLION), reply("helped", usage=MILLION), reply("done", usage=MILLION)]
    handle = made(script, [HELPER], prices=prices(outer=1, inner=10), budget=Budget(cost=10))
    done = expect_completed(handle.run())
    assert done.termination == BudgetExceeded("cost", Decimal(10), Decimal(11))
    assert done.iterations == 1
    handle.extend(budget=Budget(cost="11.5"))
    assert expect_completed(handle.run()).termination == NaturalEnd()


def test_a_model_that_was_first_seen_in_a_reply_ends_the_loop() -> None:
    """Its cost is unknown, and so is whether the budget is spent."""
    handle = made(
        [{**reply(**HELP, usage=MILLION), "model": "new"}], [HELPER], prices=prices(outer=1), budget=Budget(cost=9)
    )
    done = expect_completed(handle.run())
    assert done.termination == BudgetExceeded("cost", Decimal(9), Decimal(0))
    assert done.total_usage.cost == Cost(is_partial=True, unpriced=("new",))


def in_params() -> None:
    made([], model="new", prices=prices(outer=1), budget=Budget(cost=1))


def without_prices() -> None:
    made([], model="new", budget=Budget(cost=1))


def as_a_fallback() -> None:
    config = LoopConfig(prices=prices(outer=1), budget=Budget(cost=1))
    ToolLoopHandle(ScriptedProvider([]), params=params(fallbacks=[{"model": "new"}]), config=config)


def as_an_advisor() -> None:
    config = LoopConfig(prices=prices(outer=1), budget=Budget(cost=1))
    advisor = {"type": "advisor_20260301", "name": "advisor", "model": "new"}
    ToolLoopHandle(ScriptedProvider([]), params=params(tools=[advisor]), config=config)


def in_update_params() -> None:
    made([], prices=prices(outer=1), budget=Budget(cost=1)).update_params(model="new")


def in_extend() -> None:
    made([], model="new", prices=prices(outer=1)).extend(budget=Budget(cost=1))


def in_a_summary() -> None:
    script = [reply(calls=[call("look")]) for _ in range(4)]
    compaction = Summarize(keep_last=1, at_tokens=1, params={"model": "new"})
    made(script, [look], prices=prices(outer=1), budget=Budget(cost=1), compaction=compaction).run()


def after_sleep() -> None:
    store, config = MemoryStore(), LoopConfig(prices=prices(new=1), budget=Budget(cost=1))
    ToolLoopHandle.open(store, "a", ScriptedProvider([]), params=params("new"), config=config).close()
    with ToolLoopHandle.open(store, "a", ScriptedProvider([])) as handle:
        handle.view()
        handle.run()


@tool
def look() -> str:
    """Look."""
    return "rain"


@pytest.mark.parametrize(
    "refused",
    [
        *(in_params, without_prices, as_a_fallback, as_an_advisor),
        *(in_update_params, in_extend, in_a_summary, after_sleep),
    ],
)
def test_with_a_budget_a_model_without_a_price_is_refused_by_name(refused: Any) -> None:
    """Wherever it comes in, before a request with it is sent."""
    with pytest.raises(UnpricedModel, match="the budget limits the cost, but 'new' has no price") as caught:
        refused()
    assert caught.value.models == ("new",)


def test_a_child_without_a_price_is_refused_before_its_request() -> None:
    """As an error of its call; the loop around it goes on."""
    script = [reply(**HELP), reply("without it")]
    handle = made(script, [HELPER], prices=prices(outer=1), budget=Budget(cost=1))
    done = handle.run()
    assert isinstance(done, Completed)
    assert "'inner' has no price" in str(handle.messages)


@pytest.mark.parametrize("cost", [-1, float("nan"), "much", True])
def test_a_budget_is_a_number_of_dollars(cost: Any) -> None:
    """The error names the field."""
    with pytest.raises(ValueError, match=r"cost is .*; give dollars"):
        LoopConfig(budget=Budget(cost=cost))
