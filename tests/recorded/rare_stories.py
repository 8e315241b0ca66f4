"""Stories of what is rare, for the golden journals: so that each field of the machine has another value somewhere."""

from __future__ import annotations

from decimal import Decimal

from attrs import evolve

from tests.kit.machine import making as m
from toolloop._usage import Cost, IterationUsage
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Failure
from toolloop.machine.values.calls import DecisionRecord, GrantSpec, Result, Wait, Why
from toolloop.machine.values.jsontext import encode
from toolloop.machine.values.long_results import name_result
from toolloop.machine.values.setup import (
    Budget,
    KeepResults,
    Limits,
    LoopDetection,
    LoopFacts,
    Texts,
    ToolAnnotations,
    ToolFacts,
)
from toolloop.machine.values.splicing import Splice

Story = tuple[ev.Event, ...]


def opened(**changes: object) -> ev.Opened:
    return ev.Opened(m.setup(**changes), (m.user(),), at=100.0)


def asked(*calls: object, at: float = 101.0) -> Story:
    return (ev.Requested(at=at), evolve(m.make_replied("tool_use", m.text("Hm."), *calls), at=at + 1))


def ran(call_id: str, result: Result | None = None, iteration: int = 1) -> Story:
    done = Result(encode("done")) if result is None else result
    return (ev.Started(call_id, at=103.0), ev.Ended(call_id, done, iteration=iteration, attempt=1, at=104.0))


def masked(call_id: str) -> str:
    note = f"[Left out. Read it with {name_result(call_id)}, ...).]"
    return encode({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": note}]})


CLOSED: Story = (ev.TurnEnded(at=105.0), ev.Continued(at=106.0))
TEXTS = (
    *("denied", "not_run", "cancelled", "uncertain", "unknown_tool", "tool_gone", "invalid_input", "timed_out"),
    *("left_behind", "failed", "edited", "expired", "loop_warning", "no_answer", "cut_short"),
)
WHERE = encode({"name": "get_location", "input_schema": {"type": "object"}})
LOST = ToolFacts("lost", "once", "always", "d9", '{"type":"object"}')
SEARCH = ToolFacts("search", "keyed", "never", "d4", inside=LoopFacts("p1", m.TOOLS, frozenset({"stop_when"}), (LOST,)))
READ = ToolFacts("read", "once", "never", "d5", annotations=ToolAnnotations(True, False, True, False))
USED = {
    "input_tokens": 9,
    "output_tokens": 8,
    "cache_creation_input_tokens": 7,
    "cache_read_input_tokens": 6,
    "cache_creation": {"ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 3},
    "output_tokens_details": {"thinking_tokens": 5},
    "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 1},
    "service_tier": "priority",
    "inference_geo": "eu",
}
MARK = {"type": "ephemeral"}
REFUSED = {"type": "refusal", "category": "cyber", "explanation": "It is not allowed."}
BY_RULE = DecisionRecord("approve", rule="small", rule_digest="r1", by="rule: small", by_policy=True, at=102.5)
FOREVER = DecisionRecord("approve", by="ana", reason="the same as ever", at=104.0, remember=GrantSpec("once", "{}"))
OF_OTHER_TOOL = "121908747578a8e54fbdb219b2927ebe71784cf070e59f34db3fe7c8bcb65e8f"
RUNS: Story = (*asked(m.call("a", "pure"), m.call("b", "pure")), ev.Started("a", at=103.0), ev.Started("b", at=103.0))

RARE: dict[str, Story] = {
    "rare-annotations": (
        opened(tools=(*m.TOOLS, READ)),
        *asked(m.call("a", "read")),
        ev.Judged((("a", Wait(Why.APPROVAL)),), at=102.5),
    ),
    "rare-setup": (
        opened(
            tools=(*m.TOOLS, SEARCH),
            limits=Limits(5, 4, 30, 20.0, 6, Budget(9, 8, 70_000, 60_000, 50_000, Decimal("0.5"))),
            max_parallel_tools=4,
            stop_grace=2.5,
            texts=Texts(**{name: f"Note: {name}." for name in TEXTS}),
            gone=frozenset({"lost"}),
            callables=frozenset({"on_tool_call", "stop_when"}),
            gone_tools=(LOST,),
        ),
        *asked(m.call("a", "lost"), m.call("b")),
        ev.Judged((("b", BY_RULE),), at=102.5),
        *ran("b"),
    ),
    "rare-usage": (
        opened(),
        ev.Requested(at=101.0),
        ev.Replied(
            m.make_replied("end_turn", m.text("so"), usage=USED).reply, costs=(Cost(unpriced=("m",)),), at=102.0
        ),
        ev.FollowedUp((m.user("and now?"),), replace_last=True, by="ana", via="handle", said_at=103.0),
    ),
    "rare-calls": (
        opened(execution="ready"),
        *asked(m.code_call("a", "pure"), m.call("b", "pure", toolset_name="computer"), m.call("c")),
        ev.Judged((("c", Wait(Why.APPROVAL, "it writes", preview="- a\n+ b")),), at=102.5),
        ev.Continued(at=102.75),
        *ran(
            "a",
            Result(encode([m.text("done")]), plain="done", mark='{"type":"ephemeral"}', after=encode([m.text("!")])),
        ),
        *ran("b"),
        ev.Decided((("c", FOREVER),), at=104.0),
    ),
    "rare-other-tool": (
        opened(),
        *asked(m.call("a")),
        ev.Judged((("a", Wait(Why.APPROVAL)),), at=102.5),
        ev.Woken(changed_tools=("once",), rebinds=True, at=103.0),
        ev.Decided((("a", DecisionRecord("approve", by="ana", digest=OF_OTHER_TOOL, at=104.0)),), at=104.0),
    ),
    "rare-members": (
        opened(members=True, texts=Texts(member_not_run="Note: an earlier {kind}action failed.")),
        *asked(*(m.call(name, "left_click", toolset_name="computer") for name in "abc"), m.call("d", "pure")),
        ev.Judged((("a", Wait(Why.APPROVAL)),), only=("a", "d"), at=102.5),
        ev.Decided((("a", DecisionRecord("approve", by="ana", at=102.75)),), at=102.75),
        ev.Continued(at=102.75),
        *ran("a"),
        *ran("d"),
        ev.Judged((("b", Wait(Why.APPROVAL)),), only=("b",), at=104.5),
        ev.TurnEnded(at=105.0),
        ev.Decided((("b", DecisionRecord("deny", by="ana", reason="no", at=106.0)),), at=106.0),
    ),
    "rare-end-of-request": (opened(), ev.Requested(at=101.0), ev.Stopped("enough", "ana", "page", said_at=101.5)),
    "rare-abandoned": (
        *(opened(), ev.Requested(at=101.0)),
        ev.RequestFailed(Failure("model", "cut off", retryable=True), response='{"content":[]}', at=101.5),
        *(ev.Continued(at=102.0), ev.Requested(at=102.0)),
        ev.Stopped("enough", is_abandoned=True, said_at=103.0),
    ),
    "rare-stopping": (opened(), *RUNS, ev.Stopped("enough", "ana", waits=True, said_at=103.5)),
    "rare-limit": (
        opened(limits=Limits(timeout=2.0)),
        *RUNS,
        ev.Ended("a", Result(encode("done")), iteration=1, attempt=1, at=104.0, seconds=5.0),
        ev.TurnEnded(waits=True, at=104.5),
    ),
    "rare-late": (
        opened(limits=Limits(timeout=2.0)),
        *RUNS,
        ev.Ended("a", Result(encode("done")), iteration=1, attempt=1, at=104.0, seconds=5.0),
        ev.TurnEnded(at=104.5),
        ev.Ended("b", Result(encode("late")), iteration=1, attempt=1, at=105.0),
    ),
    "rare-stop-when": (opened(), *asked(m.call("a")), ev.Judged(stop=True, reason="enough", at=102.5)),
    "rare-cut": (opened(), ev.Requested(at=101.0), m.make_replied("max_tokens", m.text("so"), m.call("a"))),
    "rare-refusal": (opened(), ev.Requested(at=101.0), m.make_replied("refusal", m.text("No."), stop_details=REFUSED)),
    "rare-judged-end": (
        opened(callables=frozenset({"stop_when"})),
        *(ev.Requested(at=101.0), m.make_replied("end_turn", m.text("so"))),
    ),
    "rare-pauses": (
        opened(limits=Limits(max_pauses=0)),
        *(ev.Requested(at=101.0), m.make_replied("pause_turn", m.text("so far"), m.server_call("srvtoolu_1"))),
        *(ev.Continued(at=102.0), ev.TurnEnded(at=102.0)),
    ),
    "rare-circle": (
        opened(loop_detection=LoopDetection(2, "stop")),
        *(*asked(m.call("a", "pure")), *ran("a"), *CLOSED),
        *(*asked(m.call("b", "pure")), ev.Judged(at=107.0)),
    ),
    "rare-deep": (opened(depth=3), ev.TurnEnded(at=101.0)),
    "rare-taken": (
        opened(),
        *(ev.Requested(at=101.0), m.make_replied("pause_turn", m.text("so far"), m.server_call("srvtoolu_1"))),
        ev.HistoryTaken((), m.make_said(m.call("a", "pure")), keeps_unjoined=True, at=103.0),
        ev.HistoryTaken((Splice(1, 1, (m.make_said(m.server_call("srvtoolu_2")),)),), beside=1, at=104.0),
    ),
    "rare-above": (
        opened(),
        *asked(m.call("p", "keyed")),
        ev.Opened(m.setup(depth=1, within=((1, "p", 1),)), (m.user("task"),), path=("p",), at=103.0),
        *(evolve(event, path=("p",)) for event in asked(m.call("a", "pure"))),
        ev.Started("a", path=("p",), at=103.0),
        ev.Ended("a", Result(encode("done")), iteration=1, attempt=1, above=((1, 1),), path=("p",), at=104.0),
        ev.Stopped("enough", waits=True, said_at=105.0),
    ),
    "rare-output": (
        opened(output=True, texts=Texts(misfit="Again:\n{problems}")),
        *(ev.Requested(is_priced=True, at=101.0), m.make_replied("end_turn", m.text("so"))),
        ev.Judged(problems=("amount: must be greater than 0",), at=102.0),
        *(ev.Requested(at=103.0), m.make_replied("end_turn", m.text("so"), usage={"input_tokens": "many"})),
        ev.Judged(problems=("amount: must be greater than 0",), at=104.0),
    ),
    "rare-own": (
        opened(),
        *asked(m.server_call("srvtoolu_1"), m.call("a")),
        ev.Judged((("a", Wait(Why.APPROVAL)),), at=102.5),
        ev.Decided((("a", DecisionRecord("approve", '{"a":2}', by="ana", at=103.0)),), at=103.0),
        *(ev.Continued(at=103.0), ev.Judged(at=103.0), *ran("a", Result(encode([{"type": "document", "source": {}}])))),
        ev.TurnEnded(at=105.0),
    ),
    "rare-brought": (
        opened(),
        ev.Said("s1", (m.user("where am I?"),), "ana", "agui", (WHERE,), said_at=100.5),
        *asked(m.call("a", "get_location")),
    ),
    "rare-long-results": (
        opened(keep_results=KeepResults(over=30, head=10, tail=5)),
        *(*asked(m.call("a", "pure")), *ran("a", Result(encode("a long result " * 9))), *CLOSED),
        ev.HistoryEdited((Splice(2, 3, (masked("a"),)),), "MaskResults", 90, 60, at=107.0),
        *(*asked(m.call("b", "pure"), at=108.0), *ran("b", iteration=2), *CLOSED),
        ev.HistoryEdited((Splice(4, 5, (masked("b"),)),), "MaskResults", 90, 60, at=111.0),
    ),
    "rare-redacted": (
        opened(keep_results=KeepResults(over=30, head=10, tail=5)),
        *asked(m.call("a", "pure")),
        *ran("a", Result(encode([{"type": "text", "text": "a long result " * 9, "cache_control": MARK}]))),
        *CLOSED,
        *(*asked(m.call("b", "pure"), at=107.0), *ran("b", Result(encode("a secret " * 9)), iteration=2), *CLOSED),
        ev.HistoryEdited((), "Summarize", 90, 90, problem="the summary is blank", at=109.0),
        ev.HistoryEdited((Splice(4, 5, (masked("b"),)),), at=110.0),
        ev.HistoryEdited((), "Summarize", 80, 80, problem="the summary is blank", at=111.0),
        *(ev.Requested(at=112.0), ev.RequestFailed(Failure("model", "too long", 400), at=113.0)),
        ev.FollowedUp((m.user("Go on."),), at=114.0),
    ),
    "rare-given-up": (
        opened(),
        ev.Requested(at=101.0),
        ev.RequestFailed(spent=IterationUsage(1, "m", is_partial=True), at=102.0),
        ev.Ticked(at=103.0),
    ),
    "rare-cache-miss": (
        opened(),
        ev.Requested(at=101.0),
        m.make_replied("end_turn", m.text("so"), diagnostics={"cache_miss_reason": {"type": "tools_changed"}}),
    ),
}
