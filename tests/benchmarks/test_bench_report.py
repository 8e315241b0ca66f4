"""The report says what the figures say: each target is met or missed, and what was not measured is said to be so."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from attrs import evolve

from tests.benchmarks.contest import CONTESTANTS
from tests.benchmarks.made_up import BAD, GOOD, thrice
from tests.benchmarks.page import draw, markdown, text, write
from tests.benchmarks.report import tables
from tests.benchmarks.tables import Table
from tests.benchmarks.targets import Target, targets

pytestmark = pytest.mark.bench

SVG = "{http://www.w3.org/2000/svg}"


def verdicts(figures: object) -> dict[str, str]:
    return {each.what: each.verdict for each in targets(figures)}  # type: ignore[arg-type]  # as made up


def test_figures_at_their_bounds_meet_every_target() -> None:
    """All rows of the design, and the store's transactions."""
    assert set(verdicts(GOOD).values()) == {"met"}
    assert len(verdicts(GOOD)) == 16


def test_figures_beyond_their_bounds_miss_every_target() -> None:
    """Each of them, the peers' too."""
    assert list(verdicts(BAD)) == list(verdicts(GOOD))
    assert set(verdicts(BAD).values()) == {"missed"}


@pytest.mark.parametrize(
    ("name", "times"), [("sdk_runner", 8), ("langgraph_agent", 60)], ids=["the SDK's runner", "LangGraph"]
)
def test_a_peer_is_so_many_times_dearer_at_400_turns(name: str, times: int) -> None:
    """8 for the SDK's runner without threads, and 60 for LangGraph."""
    own = GOOD.cpu["toolloop_handle"][400]
    for factor, verdict in ((times, "met"), (times - 0.01, "missed")):
        figures = evolve(GOOD, samples=thrice({**GOOD.cpu, name: {400: own * factor * 1.000001}}))
        (found,) = [
            each
            for each in targets(figures)
            if each.at_least and each.bound == times and each.what.endswith("at 400 turns")
        ]
        assert found.verdict == verdict


def test_what_a_short_run_does_not_measure_is_called_so() -> None:
    """No verdict is made of conversations that were not held, or of a journal that is too short."""
    cpu = {name: {20: each[20]} for name, each in GOOD.cpu.items() if name != "langgraph_agent"}
    short = evolve(
        GOOD,
        samples=thrice({**cpu, "sdk_runner": {20: 0.002}}),
        left_out={"langgraph_agent": "not set up"},
        kept=evolve(GOOD.kept, rounds=20, handed={10: 100}, written={10: 1000}),
    )
    unmeasured = [what for what, verdict in verdicts(short).items() if verdict == "not measured"]
    assert len(unmeasured) == 8
    assert "LangGraph (not measured: not set up)" in text(short)


def test_bytes_that_the_system_does_not_tell_are_not_measured() -> None:
    """Neither met nor missed; what is handed to the store is known all the same."""
    untold = verdicts(evolve(GOOD, kept=evolve(GOOD.kept, written={}, by_hand={})))
    assert [what for what, verdict in untold.items() if verdict == "not measured"] == [
        "bytes written by the process per turn, at round 1,000 over round 10"
    ]


def test_a_ratio_is_taken_run_by_run() -> None:
    """A minute that made both slow moves none of it, nor does a run that only one of them had."""
    samples = {
        **GOOD.samples,
        "client_post": [{20: 1.0}, {20: 2.0}, {20: 10.0}],
        "toolloop_handle": [{20: 2.0}, {20: 2.0}, {20: 11.0}],
        "langgraph_agent": [{20: 200.0}, {20: 400.0}],
    }
    figures = evolve(GOOD, samples=samples)
    assert figures.cpu["toolloop_handle"][20] == figures.cpu["client_post"][20]
    assert figures.ratio("toolloop_handle", "client_post", 20) == 1.1
    assert figures.ratio("langgraph_agent", "toolloop_handle", 20) == 150
    assert figures.ratio("langgraph_agent", "toolloop_handle", 400) is None
    assert figures.ratio("nobody", "toolloop_handle", 20) is None


def test_growth_is_taken_run_by_run() -> None:
    """Each run has its own two lengths."""
    runs = [{100: 1.0, 400: 1.2}, {100: 10.0, 400: 11.0}, {100: 2.0, 400: 3.0}]
    figures = evolve(GOOD, samples={**GOOD.samples, "toolloop_handle": runs})
    assert figures.growth("toolloop_handle", 400, 100) == 1.2
    assert figures.growth("toolloop_handle", 400, 50) is None


def test_a_short_run_judges_no_ratio_of_times() -> None:
    """It says that it is too short, met or missed as they look; sizes and counts are judged."""
    for figures in (GOOD, BAD):
        found = verdicts(evolve(figures, is_short=True))
        short = [what for what, verdict in found.items() if verdict == "too short to say"]
        assert len(short) == 5
        assert all("CPU per turn" in what or "dearer" in what for what in short)


def test_the_page_says_how_many_runs_a_figure_has() -> None:
    """A column in the table of milliseconds, and words in the notes of the others."""
    (table,) = [table for table in tables(GOOD) if table.title == "CPU per turn: milliseconds"]
    assert {row[1] for row in table.rows} == {"3"}
    page = " ".join(markdown(GOOD).split())
    assert "The median of 5 such conversations; of waking, of 15, and from the texts alone of 15." in page
    assert "of an import of 15, of the listing of 15" in page


def test_the_spread_of_instructions_is_that_of_two_counts() -> None:
    """9,000 of 3.6 million."""
    assert "counted twice, and the counts differ by 0.25%" in " ".join(markdown(GOOD).split())


def test_the_ratios_are_to_the_post_and_to_toolloop() -> None:
    """Of two milliseconds over one, over one and a fifth: the reader finds both without dividing."""
    (ratios,) = [table for table in tables(GOOD) if table.title == "CPU per turn: ratios"]
    (row,) = [row for row in ratios.rows if row[0] == "SDK runner without threads"]
    assert row[1:] == ("2.00", "4.00", "12.5", "2.00", "4.00", "10.4")
    assert [row[0] for row in ratios.rows] == [each.label for each in CONTESTANTS]


def test_the_bare_post_stands_beside_the_floor() -> None:
    """In both tables of CPU time."""
    for table in tables(GOOD):
        if table.title.startswith("CPU per turn"):
            assert [row[0] for row in table.rows[:2]] == ["bare post of ready bytes", "floor"]


def test_instructions_stand_beside_cpu_time() -> None:
    """As millions, as a ratio to the post's, and that ratio in CPU time."""
    (counted,) = [table for table in tables(GOOD) if table.title == "Instructions"]
    assert ("toolloop, a turn", "3.600", "1.20", "1.00") in counted.rows
    assert ("the pure machine, a turn at round 10,000", "0.301", "0.10", "-") in counted.rows
    assert "not measured here: nothing counts here" in text(evolve(BAD, counted="nothing counts here"))


def test_peers_that_are_missing_are_named_with_the_reason() -> None:
    """In the text and on the page."""
    for said in (text(BAD), markdown(BAD)):
        assert "pydantic-ai (not measured: could not be installed)" in said
        assert "LangGraph's checkpointer, default channels (not measured: it failed)" in said


def test_every_row_of_the_page_has_as_many_cells_as_its_table() -> None:
    """Markdown drops what is too much and leaves holes, and says nothing."""
    for figures in (GOOD, BAD):
        for table in tables(figures):
            assert {len(row) for row in table.rows} == {len(table.columns)}
            assert not any("|" in cell for row in (table.columns, *table.rows) for cell in row)


def test_the_page_is_plain_text_and_the_same_each_time() -> None:
    """ASCII, and no line of prose is longer than a line of the docs."""
    page = markdown(GOOD)
    assert page == markdown(GOOD)
    assert page.isascii()
    assert all(len(line) <= 120 for line in page.splitlines() if not line.startswith("|"))
    assert page.startswith("# Benchmarks\n\nWritten by `make bench`")
    assert "Measured on 2026-11-22." in page
    assert all(f"- {line}\n" in page for line in GOOD.made_on)


def test_a_table_reads_in_columns() -> None:
    """Words to the left, figures to the right."""
    table = Table("T", ("", "ms"), [("a", "1.0"), ("long", "22.0")], "Read it so.")
    assert table.text() == "T\n-\n        ms\na      1.0\nlong  22.0"
    assert table.markdown() == "## T\n\nRead it so.\n\n|  | ms |\n| --- | ---: |\n| a | 1.0 |\n| long | 22.0 |"


def test_instructions_that_nothing_counts_are_not_measured() -> None:
    """Times on a busy machine do not stand in for them."""
    found = verdicts(evolve(GOOD, counted="nothing counts here"))
    assert [what for what, verdict in found.items() if verdict == "not measured"] == list(found)[:2]


def test_a_target_says_not_measured_before_all_else() -> None:
    """Nothing is met by silence."""
    assert Target("x", None, 1).verdict == "not measured"


def test_the_plot_has_a_line_for_each_contestant_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    """The legend names them; the page shows the plot that lies beside it."""
    write(GOOD, tmp_path)
    draw(GOOD.cpu, tmp_path / "again.svg")
    drawn = (tmp_path / "benchmarks.svg").read_text()
    assert drawn == (tmp_path / "again.svg").read_text()
    words = {each.text for each in ET.fromstring(drawn).iter(f"{SVG}text")}
    assert {each.label for each in CONTESTANTS} <= words
    assert {"20", "100", "400", "ms of CPU per turn"} <= words
    assert (tmp_path / "benchmarks.md").read_text() == markdown(GOOD)
    assert "](benchmarks.svg)" in markdown(GOOD)
