"""The page of statistics, and `/healthz`."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from starlette.testclient import TestClient

from tests.inbox.page.visitor import Visitor
from tests.inbox.support import desk
from tests.kit.world import World
from toolloop import Approve, Cost, Deny, MemoryStore
from toolloop.errors import StoreError
from toolloop.inbox import Statistics, Waits, inbox_app
from toolloop.inbox.page.statistics import OUTCOMES, bars, columns, wait_rows
from toolloop.prices import Price
from toolloop.stores import StoredLoop

COUNTS = st.dictionaries(st.sampled_from([*OUTCOMES, "new"]), st.integers(1, 10**6), min_size=1)


def decided(folder: Path) -> World:
    """A store in which two calls were decided, a minute and an hour after they began to wait."""
    found = desk("memory", folder, config={"prices": {"*": Price(input=100_000, output=0)}})
    found.drive("<b>rent</b>")
    for seconds, decision in ((60, Approve(by="ana")), (3540, Deny("no", by="bo"))):
        found.now += seconds
        found.inbox.decide("<b>rent</b>", {found.inbox.pending()[0]: decision})
    return found


def test_the_page_shows_calls_people_waits_and_cost(tmp_path: Path) -> None:
    """In words, beside the bars; ids of loops are text."""
    visitor = Visitor(decided(tmp_path))
    with visitor.http:
        visitor.open("/statistics")
        text = visitor.text
    words = " ".join(re.sub("<[^>]+>", " ", text).split())
    for expected in (
        *("1 approved 1 denied", "ana", "bo", "1 min or less", "1 h or less"),
        *("Cost: $1.00", "2027-01-15", "&lt;b&gt;rent&lt;/b&gt;"),
    ):
        assert expected in words
    assert "<b>rent</b>" not in text
    assert 'aria-current="true">30 days' in text
    assert "<script" not in text.replace('<script src="/static/page.js" defer></script>', "")
    assert "style=" not in text


def test_the_page_says_what_it_leaves_out(tmp_path: Path) -> None:
    """Loops that an earlier version stored."""
    found = decided(tmp_path)
    found.store.tallies = lambda **_: [("<b>rent</b>", None)]
    visitor = Visitor(found)
    with visitor.http:
        visitor.open("/statistics")
        assert "Without 1 loop that an earlier version of toolloop stored." in visitor.bare


@pytest.mark.parametrize(("days", "is_there"), [("7", False), ("30", True), ("365", True), ("", True), ("x", True)])
def test_the_page_counts_the_days_that_are_asked_for(tmp_path: Path, days: str, is_there: bool) -> None:
    """Of seven days with today, the eighth day ago is not one."""
    found = decided(tmp_path)
    found.now += 8 * 86_400
    visitor = Visitor(found)
    with visitor.http:
        visitor.open(f"/statistics?days={days}")
        assert ("Calls by tool" in visitor.text) is is_there
        assert ("Nothing was decided" in visitor.text) is not is_there


# --- bars ---


@given(st.dictionaries(st.text(max_size=3), COUNTS, max_size=4))
def test_bars_are_as_long_as_their_counts(rows: dict[str, dict[str, int]]) -> None:
    """Of one scale, the longest fills it; parts follow one another without a gap."""
    made = bars(rows)
    assert {bar.name: {part.outcome: part.count for part in bar.parts} for bar in made} == rows
    assert [bar.total for bar in made] == sorted((sum(counts.values()) for counts in rows.values()), reverse=True)
    most = max((bar.total for bar in made), default=0)
    for bar in made:
        end = 0.0
        for part in bar.parts:
            assert part.start == pytest.approx(end, abs=0.02)
            assert part.width == pytest.approx(100 * part.count / most, abs=0.01)
            end += 100 * part.count / most


@given(st.lists(st.integers(0, 1000), min_size=20, max_size=20).filter(any))
def test_buckets_are_drawn_and_half_of_the_calls_is_within_the_median(buckets: list[int]) -> None:
    """The fullest bucket is the highest, and an empty one has no height."""
    waits = Waits(tuple(buckets))
    (row,) = wait_rows({"pay": waits})
    assert max(row.heights) == 100
    assert [height == 0 for height in row.heights] == [count == 0 for count in buckets]
    within = sum(count for count, bound in zip(buckets, waits.bounds, strict=False) if bound <= waits.median)
    assert waits.median == float("inf") or 2 * within >= waits.count
    assert waits.median <= waits.ninety


def test_the_cost_has_a_column_for_each_day() -> None:
    """Also for those in between, at most 60; no cost has no columns."""
    cost = Cost(Decimal(2))
    days = {date(2026, 1, 1): cost, date(2026, 11, 1): Cost(Decimal(1)), date(2026, 11, 3): cost}
    drawn = columns(Statistics(days=days))
    assert len(drawn) == 60
    assert [(each.day.day, each.height) for each in drawn[-3:]] == [(1, 50.0), (2, 0.0), (3, 100.0)]
    assert columns(Statistics(days={date(2026, 1, 1): Cost(is_partial=True)}))[0].height == 0
    assert columns(Statistics()) == []


# --- health ---


class Broken(MemoryStore):
    """A store whose disk is gone."""

    def list(self, *_given: object, **_more: object) -> list[StoredLoop]:
        raise StoreError("the disk is gone")


@pytest.mark.parametrize(("store", "status"), [(MemoryStore(), 200), (Broken(), 503)])
def test_healthz_says_whether_the_store_can_be_read(store: MemoryStore, status: int) -> None:
    """To a probe without a name or a person, and nothing else; other pages refuse it."""
    app = inbox_app(store, who=lambda _: None, hosts=["approve.example.org"])
    with TestClient(app, base_url="http://10.0.0.7") as probe:
        answer = probe.get("/healthz")
        assert (answer.status_code, answer.text.startswith("ok")) == (status, status == 200)
        assert "disk" not in answer.text
        assert probe.get("/").status_code == 421
