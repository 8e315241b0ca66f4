"""Stories of histories that are edited and compacted, and of thinking that was born after other words."""

from __future__ import annotations

from tests.core import making as m
from tests.stores.nested_stories import TWO, Story, asked, at, ran
from toolloop.core import events as ev
from toolloop.core.splicing import Splice
from toolloop.core.usage import IterationUsage, Usage

THOUGHT = (m.thinking("Grüße \u2028"), m.call("a", "pure"))
CLOSED: Story = (
    ev.Opened(m.setup(), (m.user("Grüße \u2028 12"),), at=100.0),
    *at("", *asked(*THOUGHT), *ran("a"), ev.TurnEnded(), ev.Continued()),
)
SUMMARY = m.user("Summary: Grüße \u2028")
USED = IterationUsage(1, "m", "end_turn", "req_2", Usage(input_tokens=9, output_tokens=2), 2.0, kind="summary")
SUMMED_UP = ev.Compacted("summarize", (Splice(1, 3, (SUMMARY,)),), 900, 80, USED, seconds=2.0)
FAILED = ev.Compacted("summarize", before=900, after=900, problem="the request failed: slow down")
MASKED = ev.Compacted("mask_results", (Splice(2, 3, (m.user("masked"),)),), before=900, after=80)
SPLICES = (Splice(0, 1, (m.user("shorter"),)), Splice(3, 3, (m.user("more"), m.system())))
SHORTENED = ev.Compacted("summarize", (Splice(0, 1, (SUMMARY,)),), 900, 80, USED)

EDITED: dict[str, Story] = {
    "spliced": (*CLOSED, *at("", ev.HistoryEdited(splices=SPLICES), *asked(*THOUGHT[1:]), since=110.0)),
    "masked": (*CLOSED, *at("", MASKED, ev.Compacted("drop_rounds", before=80, after=80), since=110.0)),
    "summary-asked": (*CLOSED, *at("", ev.Requested(summary=True), ev.Injected((m.user("more"),)), since=110.0)),
    "summarized": (*CLOSED, *at("", ev.Requested(summary=True), SUMMED_UP, ev.Requested(), since=110.0)),
    "summary-failed": (*CLOSED, *at("", ev.Requested(summary=True), FAILED, ev.Requested(), since=110.0)),
    "unbound": (
        *CLOSED,
        *at("", ev.ParamsChanged('{"model":"n","system":"Be brief."}', ("system",)), *asked(*THOUGHT), since=110.0),
    ),
    "nested-compacted": (
        *TWO,
        *at("p", *asked(*THOUGHT), *ran("a"), ev.TurnEnded(), ev.Requested(summary=True), SHORTENED, since=104.0),
        *at("q", ev.Compacted("drop_rounds", (Splice(0, 1, (m.user("task"),)),), 9, 8), ev.Requested(), since=112.0),
    ),
}
