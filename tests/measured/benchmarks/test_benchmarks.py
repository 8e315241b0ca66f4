"""The benchmark compares like with like, and its figures are of the whole conversation; no time is asserted here."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import httpx2
import pytest

from tests.kit.effort import IS_DEEP
from tests.measured.benchmarks import __main__ as program, compare, deciding, peers, plots, rounds, scenario, seat
from tests.measured.benchmarks.commits import commits
from tests.measured.benchmarks.conversations import LABELS, Turns
from tests.measured.benchmarks.measure import cpu_per_turn, hold
from tests.measured.benchmarks.profile import TURNS as PROFILED, by_part, counts
from tests.measured.benchmarks.report import Figure
from tests.measured.benchmarks.server import serving
from tests.measured.benchmarks.stored import LOOP, begin, bytes_per_turn, drive
from toolloop import MemoryStore, SqliteStore
from toolloop.stores import Head

ROUNDS, FEW, TURNS = 1000, 110, 3
THREADED = ("toolloop_threads", "sdk_runner_threads")
PEERS = ("pydantic_agent", "langgraph_agent")
OWN = [name for name in LABELS if name not in (*THREADED, *PEERS)]


@pytest.fixture(scope="module")
def recorder() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, serving("--record") as url:
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("no_proxy", "127.0.0.1")
        yield url


def received(name: str, url: str) -> list[Any]:
    """Return the headers and bodies of a conversation."""
    contestant = import_module(f"tests.measured.benchmarks.contestants.{name}")
    with contestant.connect(url) as client:
        hold(contestant.conversation(client, TURNS), TURNS)
    return list(httpx2.get(url).json())[-TURNS:]


def expected_messages() -> list[list[Any]]:
    messages = scenario.params(TURNS)["messages"]
    requests = [messages]
    for turn in range(1, TURNS):
        content = scenario.reply(turn, TURNS)["content"]
        call = content[-1]
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": scenario.add(**call["input"])}
        messages = [*messages, {"role": "assistant", "content": content}, {"role": "user", "content": [result]}]
        requests.append(messages)
    return requests


def blocks(content: Any) -> Any:
    """Return a content without what the peers add: a text is a block of text, and `is_error: false` says nothing."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    plain = [{key: value for key, value in block.items() if (key, value) != ("is_error", False)} for block in content]
    return [{**block, "content": blocks(block["content"])} if "content" in block else block for block in plain]


def plain(messages: list[Any]) -> list[Any]:
    return [{**message, "content": blocks(message["content"])} for message in messages]


def same_parameters(body: Any) -> None:
    assert blocks(body["system"]) == blocks(scenario.system(TURNS))
    assert (body["model"], body["max_tokens"]) == (scenario.MODEL, scenario.MAX_TOKENS)
    assert [(tool["name"], tool["description"]) for tool in body["tools"]] == [
        (scenario.ADD["name"], scenario.ADD["description"])
    ]


# --- stores ----------------------------------------------------------------------------------------------------------


def test_a_journal_is_at_most_the_raw_json_and_250_bytes_per_event(tmp_path: Path) -> None:
    """The file of many rounds with its indexes; `make deep` has as many as the benchmark."""
    memory, path, many = MemoryStore(), tmp_path / "loops.db", ROUNDS if IS_DEEP else 400
    drive(begin(memory, many), many)
    entries = memory.load(LOOP).entries  # copied, because so many rounds with their syncs take long
    with SqliteStore(path) as store:
        store.create(LOOP, entries[:1], head=Head("ended"))
        store.append(LOOP, entries[1:], expected_rev=1)
    beyond = rounds.checkpointed_size(path) - rounds.raw_bytes(many)
    assert beyond / len(entries) <= 250


def test_what_a_turn_hands_to_the_store_does_not_grow(tmp_path: Path) -> None:
    """A late turn stores as many bytes as an early one; the conversation is as big as it says."""
    handed = bytes_per_turn(tmp_path, FEW)
    assert handed[100] <= 1.05 * handed[10]
    assert (len(rounds.encode(rounds.arguments(7))), len(rounds.look_up(7).encode())) == (200, 1024)
    handle = begin(None, 3)
    drive(handle, 3)
    assert rounds.raw_bytes(3) == len(rounds.encode(list(handle.messages)))
    with pytest.raises(TypeError, match="ended after 2 of 3 turns"):
        drive(begin(None, 2), 3)


# --- conversations ---------------------------------------------------------------------------------------------------


@pytest.mark.bench
@pytest.mark.parametrize("name", OWN)
def test_every_contestant_sends_the_same_conversation(name: str, recorder: str) -> None:
    """A cheaper turn is not cheaper because it sends less."""
    sent = [body for _, body in received(name, recorder)]
    assert [body["messages"] for body in sent] == expected_messages()
    for body in sent:
        same_parameters(body)


@pytest.mark.bench
@pytest.mark.parametrize("name", THREADED)
def test_with_threads_only_what_is_new_goes_out(name: str, recorder: str) -> None:
    """The API holds the rest: each request follows the reply before it, and has one message."""
    sent = [body for _, body in received(name, recorder)]
    assert [body["messages"] for body in sent] == [messages[-1:] for messages in expected_messages()]
    same_parameters(sent[0])


@pytest.mark.bench
@pytest.mark.parametrize("name", PEERS)
def test_the_peers_send_the_same_conversation(name: str, recorder: str) -> None:
    """In an environment of their own, but for forms that mean the same."""
    python = peers.python(make=True)
    assert python is not None
    assert cpu_per_turn(name, recorder, [TURNS], python=python, seconds=1e-9)[TURNS] > 0
    sent = [body for _, body in list(httpx2.get(recorder).json())[-TURNS:]]
    assert [plain(body["messages"]) for body in sent] == [plain(messages) for messages in expected_messages()]
    for body in sent:
        assert (body["model"], body["max_tokens"]) == (scenario.MODEL, scenario.MAX_TOKENS)


@pytest.mark.bench
def test_toolloop_and_the_post_that_it_is_compared_with_send_the_same_headers(recorder: str) -> None:
    """In the same order; the lengths of the bodies aside."""

    def headers(name: str) -> list[list[str]]:
        sent = [headers for headers, _ in received(name, recorder)]
        return [[line for line in lines if not line.lower().startswith("content-length:")] for lines in sent]

    post = headers("client_post")
    assert headers("toolloop_handle") == post
    assert sum(line.lower() == "content-type: application/json" for line in post[0]) == 1


@pytest.mark.bench
def test_a_contestant_that_stops_early_is_an_error() -> None:
    """Not a good figure."""
    with pytest.raises(ValueError, match="a conversation of 3 turns ended with 'enough'"):
        hold(lambda: "enough", TURNS)


# --- the report ------------------------------------------------------------------------------------------------------


@pytest.mark.bench
def test_a_figure_beyond_its_bound_missed_its_target() -> None:
    """And one that was not measured is not met."""
    for value, at_least, verdict in (
        (2, False, "met"),
        (2.1, False, "missed"),
        (1.9, True, "missed"),
        (2, True, "met"),
    ):
        assert Figure("x", value, 2, at_least=at_least).verdict == verdict
    assert Figure("x", None, 2).verdict == "not measured"


@pytest.mark.bench
def test_a_ratio_is_taken_run_by_run() -> None:
    """A minute that made both slow does not change it, nor does a run that only one of them had."""
    cpu = {"client_post": [{20: 1.0}, {20: 2.0}, {20: 10.0}], "toolloop_handle": [{20: 2.0}, {20: 2.0}, {20: 11.0}]}
    turns = Turns({**cpu, "sdk_runner": [{20: 5.0}]}, {})
    assert turns.ratio("toolloop_handle", "client_post", 20) == 1.1
    assert turns.ratio("sdk_runner", "client_post", 20) == 5
    assert turns.ratio("sdk_runner", "client_post", 400) is turns.ratio("unknown", "sdk_runner", 20) is None


@pytest.mark.bench
def test_a_quick_run_reports_every_target(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that it cannot measure are called so."""
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--quick"])
    program.main(quick=True)
    printed = capsys.readouterr().out
    figures = printed.partition("## Targets")[2].partition("##")[0].splitlines()
    rows = [line for line in figures if line.startswith("| ")][2:]
    assert len(rows) == len({row.split(" | ")[0] for row in rows}) > 0
    for row in rows:
        assert row.endswith(("| met |", "| missed |", "| not measured |"))
    assert "CPython" in printed


@pytest.mark.bench
def test_the_profile_tells_the_part_of_each_bytecode() -> None:
    """The table is complete, and the loop over the client's post uses the SDK and no part of toolloop."""
    found = counts("client_post")
    parts = by_part(found)
    assert sum(parts.values()) == pytest.approx(sum(found.values()) / PROFILED)
    assert parts["httpx2"] > parts["the benchmark: its tool, its loop"] > 0
    assert parts["the SDK"] > parts["toolloop: the machine"] == 0


def test_a_decision_is_timed_to_the_start_of_its_tool(tmp_path: Path) -> None:
    """In another process, which stands ready; the loops beside it are not driven."""
    path = tmp_path / "loops.db"
    with SqliteStore(path) as store:
        loop_ids = deciding.fill(store, beside=3, decisions=2)
        with deciding.worker(path, notifies=True) as started:
            assert deciding.ask(started, "cpu") > 0
            (taken,) = deciding.seconds_to_start(store, started, loop_ids)
            assert deciding.ask(started, "rows") >= 1
    assert taken > 0


# --- the libraries beside each other ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", compare._OF_PROJECT)
def test_a_library_in_its_seat_answers_every_measurement(name: str, tmp_path: Path) -> None:
    """With figures, or with the reason why it has none."""

    async def ask() -> dict[str, Any]:
        library = import_module(f"tests.measured.benchmarks.libraries.{name}")
        held = tmp_path / "held-3.db"
        answers: dict[str, Any] = {"many": await seat.many(library, tmp_path, 3, 2, 0.0)}
        answers["parallel"] = await seat.parallel(library, tmp_path, 1)
        try:
            answers["hold"] = await seat.hold(library, tmp_path, 3)
            answers["click"] = await seat.click(library, tmp_path, str(held), 3)
        except NotImplementedError as reason:
            answers["reason"] = str(reason)
        return answers

    answers = asyncio.run(ask())
    assert answers["parallel"]["ms"] > 10
    assert answers["many"]["p99"] >= answers["many"]["p50"] > 0
    if name == compare.OWN:
        assert answers["hold"]["bytes"] > rounds.raw_bytes(3)
        assert answers["click"]["ms"] > 0
    else:
        assert answers["reason"] == "no store"


def test_a_library_that_is_not_installed_is_a_row_that_says_so() -> None:
    """And what failed is not a figure; both have no place in a picture."""
    key = ("click", 5)
    answers: Any = {key: {name: [{"ms": 4.0}, {"ms": 2.0}] for name in compare.LIBRARIES}}
    answers[key]["with_langgraph"] = ["not installed", "not installed"]
    extent = compare.Extent(2, ((2, 2, 0.0),), (5,), 1)
    text, ((_, picture),) = next(compare.Compared(extent, answers).sections())
    assert "| toolloop | 3 (2 to 4) |" in text
    assert "| LangGraph | not installed |" in text
    assert picture.count("<polyline") == len(compare.LIBRARIES) - 1


def test_a_library_that_hangs_is_left_out_with_the_reason() -> None:
    """Later questions wait for nothing; one that ends has failed."""
    silent = [sys.executable, "-c", "input(); input()"]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(silent, **pipes) as process:
        hangs = compare.Seat(process, patience=0.1)
        assert [hangs.ask("many"), hangs.ask("click")] == ["no answer in 0.1 s"] * 2
    with subprocess.Popen([*silent[:2], "input()"], **pipes) as process:
        assert compare.Seat(process).ask("many") == "failed"


def test_every_section_names_what_failed() -> None:
    """A page is written whatever is missing, also where each library failed."""
    extent = compare.Extent(1, ((2, 2, 0.0),), (5,), 1)
    keys: Any = (("many", 2, 2, 0.0), ("parallel", 1), ("confirm", compare._CONFIRMED), ("hold", 5), ("click", 5))
    compared = compare.Compared(extent, {key: {name: ["failed"] for name in compare.LIBRARIES} for key in keys})
    texts = [text for text, _ in compared.sections()]
    assert sum(text.count("| failed") for text in texts) == 8 * len(compare.LIBRARIES)  # columns
    assert texts[-1].count("| no other |") == len(keys)


def test_a_peer_may_lack_a_length() -> None:
    """Its curve has the others, and its cell is empty."""
    whole, lacking = [{20: 1.0, 400: 2.0}], [{20: 3.0}]
    turns = Turns({"toolloop_handle": whole, "langgraph_agent": lacking}, {})
    assert turns.plot().count("<polyline") == 2
    assert "| LangGraph | 3,000 | - |" in next(turns.tables())
    assert [each.value for each in turns.figures() if "LangGraph" in each.what] == [None]


def test_commits_of_sqlite_are_counted_if_they_wait_for_the_disk(tmp_path: Path) -> None:
    """In transactions and outside; a connection that does not wait makes all of them count nothing."""

    def write(*settings: str) -> tuple[int, int]:
        with commits() as counted, closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as db:
            for setting in settings:
                db.execute(f"PRAGMA {setting}")
            db.execute("CREATE TABLE IF NOT EXISTS texts (text)")
            with db:
                db.execute("BEGIN")
                db.execute("INSERT INTO texts VALUES ('one')")
                db.execute("INSERT INTO texts VALUES ('two')")
            db.execute("SELECT * FROM texts")
            db.execute("DELETE FROM texts")
        return counted.made, counted.confirmed

    assert write("journal_mode=WAL", "synchronous = FULL") == (3, 3)
    assert write("synchronous = NORMAL") == (3, 0)
    assert write("journal_mode = OFF") == (3, 0)


@pytest.mark.parametrize("values", [{}, {"toolloop": None}, {"toolloop": 0.0, "pydantic-ai": 2.0}])
def test_a_picture_is_well_formed_whatever_is_missing(values: dict[str, float | None]) -> None:
    """Titles and labels are escaped."""
    ET.fromstring(plots.bars("<a & b>", "ms", values))
    curves = {label: [(10.0, value), (100.0, value)] for label, value in values.items() if value is not None}
    ET.fromstring(plots.lines("<a & b>", "ms", curves))
