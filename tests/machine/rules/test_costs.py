"""Costs: how they add up, which model and label each part of a reply has, and the budget that they spend."""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, strategies as st

from tests.kit.machine import making as m
from toolloop._usage import Cost, IterationUsage, ModelUsage, Usage, read_parts
from toolloop.machine.queries import outstanding
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import EndTurn, SendRequest
from toolloop.machine.record.loop import State
from toolloop.machine.record.replies import read_reply
from toolloop.machine.rules.limits import count_left
from toolloop.machine.tree import step
from toolloop.machine.values.setup import Budget, Limits
from toolloop.terminations import BudgetExceeded

COSTS = st.builds(
    Cost,
    st.decimals(0, 1_000_000, places=9),
    st.booleans(),
    st.sets(st.sampled_from("abc"), max_size=2).map(sorted).map(tuple),
)
USAGES = st.builds(Usage, input_tokens=st.integers(0, 2), cost=st.none() | COSTS)


# --- sums ---


@given(COSTS, COSTS, COSTS, st.integers(1, 5))
def test_costs_add_up_exactly(one: Cost, two: Cost, three: Cost, digits: int) -> None:
    """In any order, with nothing as the neutral element, whatever the precision of the process is."""
    total = (one + two) + three
    with localcontext(prec=digits):
        assert one + (three + two) == total
    assert total.dollars == sum(each.dollars for each in (one, two, three))
    assert total.is_partial is any(each.is_partial for each in (one, two, three))
    assert set(total.unpriced) == {*one.unpriced, *two.unpriced, *three.unpriced}
    assert evolve(one + Cost(), unpriced=one.unpriced) == one


def test_a_cost_adds_to_nothing_else() -> None:
    """A number is not a cost."""
    with pytest.raises(TypeError):
        Cost() + 1  # type: ignore[operator]


@given(USAGES, USAGES, USAGES)
def test_the_cost_of_usages_is_the_sum_of_those_that_have_one(one: Usage, two: Usage, three: Usage) -> None:
    """It is partial if tokens have no cost, and None if nothing has one; in any order."""
    total, every = (one + two) + three, (one, two, three)
    assert one + (two + three) == total
    costs = [each.cost for each in every if each.cost is not None]
    if not costs:
        assert total.cost is None
        return
    assert total.cost is not None
    assert total.cost.dollars == sum(cost.dollars for cost in costs)
    lacks = any(each.cost is None and each.input_tokens for each in every)
    assert total.cost.is_partial is (lacks or any(cost.is_partial for cost in costs))


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (Cost(Decimal("0.01234")), "$0.0123"),
        (Cost(Decimal("12.346"), is_partial=True), "at least $12.35"),
        (Cost(), "$0.00"),
    ],
)
def test_a_cost_is_written_for_people(cost: Cost, text: str) -> None:
    """Dollars, and that they are the least."""
    assert str(cost) == text


# --- the models of a reply ---

MESSAGE = {"type": "message", "input_tokens": 10, "output_tokens": 1}
ADVISOR = {"type": "advisor_message", "model": "wise", "input_tokens": 7, "output_tokens": 2}


@pytest.mark.parametrize(
    ("usage", "parts"),
    [
        pytest.param({"input_tokens": 1, "speed": "standard"}, [ModelUsage("m", Usage(1))], id="one model"),
        pytest.param(
            {"input_tokens": 1, "speed": "fast", "service_tier": "priority", "inference_geo": "us"},
            [ModelUsage("m", Usage(1), "priority", "fast", "us")],
            id="not as standard",
        ),
        pytest.param(
            {
                "input_tokens": 20,
                "speed": "fast",
                "service_tier": 7,
                "cache_creation": {"ephemeral_1h_input_tokens": 5},
                "iterations": [MESSAGE, ADVISOR, MESSAGE],
            },
            [
                ModelUsage("m", Usage(20, 2, cache_creation_1h_input_tokens=5), speed="fast"),
                ModelUsage("wise", Usage(7, 2)),
            ],
            id="an advisor",
        ),
        pytest.param(
            {"server_tool_use": {"web_search_requests": 1}, "iterations": [ADVISOR]},
            [ModelUsage("wise", Usage(7, 2, web_search_requests=1))],
            id="no part of the reply's own model",
        ),
        pytest.param("much", [], id="no usage"),
    ],
)
def test_usage_is_read_by_the_model_that_it_names(usage: Any, parts: list[ModelUsage]) -> None:
    """Also by how it was served; labels of the reply are those of its own model."""
    assert list(read_parts(usage, "m")) == parts


def reply(*costs: Cost, usage: Any = None, model: str = "m") -> ev.Replied:
    body = {"content": [m.text("so")], "stop_reason": "end_turn", "model": model, "usage": usage or {"input_tokens": 1}}
    return ev.Replied(read_reply(body), costs=costs)


def test_the_log_has_parts_only_where_they_say_more() -> None:
    """A usual reply has one part, which the entry describes as a whole."""
    entry = reply().reply.entry(1, 0.5, [Cost(Decimal(2))])
    assert entry == IterationUsage(1, "m", "end_turn", None, Usage(1, cost=Cost(Decimal(2))), 0.5)
    assert entry.by_model == (ModelUsage("m", entry.usage),)
    assert entry.cost == Cost(Decimal(2))
    two = reply(usage={"iterations": [MESSAGE, ADVISOR]}).reply.entry(1, 0.5, [Cost(Decimal(2)), Cost(Decimal(3))])
    assert [(part.model, part.usage.cost) for part in two.by_model] == [
        ("m", Cost(Decimal(2))),
        ("wise", Cost(Decimal(3))),
    ]
    assert two.cost == Cost(Decimal(5))


@given(st.lists(COSTS, max_size=4))
def test_costs_of_a_reply_may_be_more_or_fewer_than_its_parts(costs: list[Cost]) -> None:
    """A later version may read other parts: what is in the journal stays readable."""
    entry = reply(usage={"iterations": [MESSAGE, ADVISOR]}).reply.entry(1, 0.0, costs)
    assert [part.usage.cost for part in entry.parts] == [*costs[:2], None, None][:2]


# --- a budget ---


def spend(*costs: Cost, limit: str = "5") -> State:
    """Return a loop with this budget after replies with these costs, each of a user turn."""
    state = m.state_after(limits=Limits(budget=Budget(cost=Decimal(limit))))
    for cost in costs:
        state = m.go(state, ev.Requested(), reply(cost), ev.FollowedUp((m.user(),)))
    return state


def test_no_request_begins_once_the_budget_is_spent() -> None:
    """At the very figure; before it, the next one begins."""
    assert outstanding(spend(Cost(Decimal("2.5")), Cost(Decimal("2.499")))) == (SendRequest(),)
    state = spend(Cost(Decimal("2.5")), Cost(Decimal("2.5")))
    assert outstanding(state) == (EndTurn(),)
    assert count_left(state.root)["cost"] == 0.0
    assert m.termination(step(state, ev.TurnEnded())) == BudgetExceeded("cost", Decimal(5), Decimal("5.0"))


def test_a_model_without_a_price_ends_the_loop() -> None:
    """What it cost is unknown, so that the budget may be spent."""
    state = step(spend(Cost(Decimal(1), is_partial=True, unpriced=("new",))), ev.TurnEnded())
    assert m.termination(state) == BudgetExceeded("cost", Decimal(5), Decimal(1))
    assert outstanding(spend(Cost(Decimal(1), is_partial=True))) == (SendRequest(),)


@pytest.mark.parametrize("event", [ev.Woken(), ev.Restored()], ids=["another driver", "a backup"])
def test_a_request_whose_end_is_unknown_may_have_cost_anything(event: ev.Event) -> None:
    """Where a budget counts costs. Its tokens are not known either."""
    unknown = IterationUsage(1, usage=Usage(cost=Cost(is_partial=True)), is_partial=True)
    for is_priced, log in ((True, [unknown]), (False, [])):
        state = m.state_after(ev.Requested(is_priced=is_priced), event)
        assert (list(state.root.usage_log), state.root.iterations) == (log, 0)


def test_a_request_that_was_given_up_is_counted_and_what_arrived_is_kept() -> None:
    """As far as it is known. A later failure without a reply leaves what arrived before."""
    spent = IterationUsage(1, usage=Usage(3, 2), is_partial=True)
    state = m.state_after(ev.RequestFailed(spent=spent, response='{"half":1}'), ev.RequestFailed(m.FAILURE))
    assert (list(state.root.usage_log), state.root.total_usage) == ([spent], Usage(3, 2))
    assert state.root.response == '{"half":1}'


def test_without_prices_nothing_is_spent() -> None:
    """As in an old journal."""
    state = m.go(m.state_after(limits=Limits(budget=Budget(cost=Decimal(5)))), ev.Requested(), reply())
    state = m.go(state, ev.FollowedUp((m.user(),)))
    assert state.root.total_usage.cost is None
    assert outstanding(state) == (SendRequest(),)
    assert count_left(state.root)["cost"] == 5.0


@pytest.mark.parametrize(("value", "cost"), [(None, None), (1, "1"), (0.1, "0.1"), ("2.5", "2.5")])
def test_a_budget_takes_any_number(value: Any, cost: str | None) -> None:
    """A float counts as it is written."""
    assert Budget(cost=value).cost == (None if cost is None else Decimal(cost))


@pytest.mark.parametrize("value", [True, "much", [], b"1"])
def test_a_value_that_is_not_a_number_stays_as_it_is(value: Any) -> None:
    """The configuration refuses it by name."""
    assert Budget(cost=value).cost is value
