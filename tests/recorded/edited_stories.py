"""Stories of histories that are edited and compacted, and of thinking that is stale."""

from __future__ import annotations

from tests.kit.machine import making as m
from tests.recorded.nested_stories import TWO, Story, asked, at, ran
from toolloop._usage import IterationUsage, Usage
from toolloop.machine.record import journal_events as ev
from toolloop.machine.values.splicing import Splice

THOUGHT = (m.thinking("Grüße \u2028"), m.call("a", "pure"))
CLOSED: Story = (
    ev.Opened(m.setup(), (m.user("Grüße \u2028 12"),), at=100.0),
    *at("", *asked(*THOUGHT), *ran("a"), ev.TurnEnded(), ev.Continued()),
)
SUMMARY = m.user("Summary: Grüße \u2028")
USED = IterationUsage(1, "m", "end_turn", "req_2", Usage(input_tokens=9, output_tokens=2), 2.0, kind="summary")
SUMMED_UP = ev.HistoryEdited((Splice(1, 3, (SUMMARY,)),), "summarize", 900, 80, USED, seconds=2.0)
FAILED = ev.HistoryEdited((), "summarize", before=900, after=900, problem="the request failed: slow down")
MASKED = ev.HistoryEdited((Splice(2, 3, (m.user("masked"),)),), "mask_results", before=900, after=80)
UNCHANGED = ev.HistoryEdited((), "drop_rounds", before=80, after=80)
SPLICES = (Splice(0, 1, (m.user("shorter"),)), Splice(3, 3, (m.user("more"), m.system())))
SHORTENED = ev.HistoryEdited((Splice(0, 1, (SUMMARY,)),), "summarize", 900, 80, USED)
DROPPED = ev.HistoryEdited((Splice(0, 1, (m.user("task"),)),), "drop_rounds", 9, 8)
BRIEF = ev.Changed('{"model":"n","system":"Be brief."}', ("system",))

EDITED: dict[str, Story] = {
    "spliced": (*CLOSED, *at("", ev.HistoryEdited(SPLICES), *asked(*THOUGHT[1:]), since=110.0)),
    "masked": (*CLOSED, *at("", MASKED, UNCHANGED, since=110.0)),
    "summarized": (*CLOSED, *at("", SUMMED_UP, ev.Requested(), since=110.0)),
    "summary-failed": (*CLOSED, *at("", FAILED, ev.Requested(), since=110.0)),
    "stale-thinking": (*CLOSED, *at("", BRIEF, *asked(*THOUGHT), since=110.0)),
    "nested-compacted": (
        *TWO,
        *at("p", *asked(*THOUGHT), *ran("a"), ev.TurnEnded(), SHORTENED, since=104.0),
        *at("q", DROPPED, ev.Requested(), since=112.0),
    ),
}
