"""Golden journals: a file for each story, with its entries and the snapshot of the state that they lead to.

The files of a released format never change, and no test writes them. `python -m tests.recorded.test_golden_journals`
writes the files that are missing: of a new story, or of a new format.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.kit.each import each
from tests.kit.machine import making as m
from tests.recorded.deciding_stories import DECIDING
from tests.recorded.edited_stories import EDITED
from tests.recorded.nested_stories import NESTED
from tests.recorded.rare_stories import RARE
from toolloop._usage import Cost, IterationUsage, Usage
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Failure, State, Thread
from toolloop.machine.record.replies import read_reply
from toolloop.machine.tree import fold, fork
from toolloop.machine.values.calls import DecisionRecord, GrantSpec, Outcome, Reject, Result, Wait, Why
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.jsontext import encode
from toolloop.machine.values.setup import Budget, Limits
from toolloop.machine.values.splicing import Splice
from toolloop.stores import FORMAT, Entry, dump, load
from toolloop.stores.codec import EVENTS, encode_event, read_journal

GOLDEN = Path(__file__).with_name("golden")


def opened(**changes: object) -> ev.Opened:
    return ev.Opened(m.setup(**changes), (m.user("Grüße \u2028 12"),), at=100.0)


def asked(*calls: object, at: float = 101.0) -> tuple[ev.Event, ...]:
    """A request, and a reply with calls, in a layout that is not toolloop's own."""
    body = {"content": [m.text("Hm."), *calls], "stop_reason": "tool_use", "usage": {"input_tokens": 9}, "model": "m"}
    reply = read_reply(body, text=json.dumps(body, ensure_ascii=False), request_id="req_1")
    return (ev.Requested(at=at), ev.Replied(reply, 1.5, at=at + 1.5, seconds=1.5))


def ran(call_id: str, iteration: int = 1, attempt: int = 1) -> tuple[ev.Event, ...]:
    result = Result(encode(f"done {call_id}"))
    ended = ev.Ended(call_id, result, took=0.25, iteration=iteration, attempt=attempt, at=104.0, seconds=0.25)
    return (ev.Started(call_id, "d1", at=103.0), ended)


CLOSED = (ev.TurnEnded(at=105.0), ev.Continued(at=106.0))
BIG = m.call("toolu_big", "pure", input={"n": 12345678901234567890123456789, "s": "\ud800"})
APPROVED = DecisionRecord("approve", '{"a":2}', by="ana", reason="safer", digest=None, at=102.75)
GRANT = GrantSpec("once", '{"a":"/srv/*"}', uses=2, expires_at=900.0)
SERVED = [m.text("so far"), m.server_call("srvtoolu_1")]

TAKEN = encode({"role": "assistant", "content": [m.call("a", "pure"), m.call("b", "pure")]})

GRANTED = (
    opened(),
    *asked(m.call("a", input={"a": "/srv/x"})),
    ev.Judged((("a", Wait(Why.APPROVAL)),), at=103.0),
    ev.Decided((("a", DecisionRecord("approve", by="ana", at=104.0, remember=GRANT)),), at=104.0),
    ev.Continued(at=104.0),
    *ran("a"),
    *CLOSED,
    *asked(m.call("b", input={"a": "/srv/y"})),
    ev.Judged((("b", Wait(Why.APPROVAL)),), at=107.0),
    *ran("b", 2),
    ev.TurnEnded(at=108.0),
)

COST = Cost(Decimal("0.125"))
ADVISED = {
    "input_tokens": 9,
    "speed": "fast",
    "iterations": [{"input_tokens": 9}, {"type": "advisor_message", "model": "wise", "output_tokens": 2}],
}
PRICED = (
    ev.Requested(at=101.0),
    ev.Replied(
        m.make_replied("end_turn", m.text("so"), model="m", usage=ADVISED).reply,
        1.5,
        costs=(Cost(Decimal("0.0123")), Cost(Decimal("0.002"), is_partial=True)),
        at=102.5,
        seconds=1.5,
    ),
)
SUMMED = IterationUsage(2, "m", "end_turn", usage=Usage(5, cost=COST), seconds=0.5, kind="summary")
CUT = IterationUsage(2, "m", usage=Usage(cost=Cost(is_partial=True)), seconds=0.25, is_partial=True)

STORIES: dict[str, tuple[ev.Event, ...]] = {
    "plain": (opened(), *asked(BIG), *ran("toolu_big"), *CLOSED, *asked(m.call("b", "keyed")), *ran("b", 2)),
    "decisions": (
        opened(),
        *asked(m.call("a"), m.call("b"), m.call("c"), m.call("d", "unknown"), m.call("e")),
        ev.Judged(
            (
                ("a", Wait(Why.APPROVAL, "it writes", fresh=True)),
                ("b", DecisionRecord("deny", reason="never", at=102.5)),
                ("c", Wait(Why.EXTERNAL)),
                ("d", Reject(Outcome.UNKNOWN_TOOL, "There is no such tool.")),
                ("e", Wait(Why.APPROVAL)),
            ),
            at=102.5,
        ),
        ev.Decided(
            (("a", APPROVED), ("c", DecisionRecord("answer", encode([m.text("x")]), is_error=True, by="bo", at=103.0))),
            at=103.0,
        ),
        ev.Decided((("e", DecisionRecord("deny", by="ana", reason="no", at=103.5)),), at=103.5),
        ev.Continued(at=104.0),
    ),
    "expiry": (
        opened(decision_timeout=60.0),
        *asked(m.call("a"), m.call("b")),
        ev.Judged((("a", Wait(Why.APPROVAL)), ("b", Wait(Why.APPROVAL, expires_in=600.0))), at=103.0),
        ev.Ticked(at=200.0),
    ),
    "expired-stop": (
        opened(decision_timeout=60.0, execution="ready", on_expiry="stop"),
        *asked(m.call("a"), m.call("b", "pure")),
        ev.Judged((("a", Wait(Why.APPROVAL)),), at=103.0),
        ev.Continued(at=103.0),
        ev.Started("b", at=103.0),
        ev.Ended("b", Result(encode("done")), took=70.0, iteration=1, attempt=1, at=173.0, seconds=70.0),
    ),
    "granted": GRANTED,
    "taken": (
        opened(),
        *asked(m.call("a", "pure"), m.call("b", "pure")),
        ev.HistoryTaken((Splice(1, 1, (m.user("so"),)),), TAKEN, at=102.9),
        *ran("a"),
        *ran("b"),
        ev.HistoryTaken((), TAKEN, rerun=("a",), at=104.6),
        ev.Judged(at=104.7),
        *ran("a", attempt=2),
        *CLOSED,
        *asked(m.call("c"), at=107.0),
        ev.HistoryTaken((Splice(3, 4),), at=109.0),
        *asked(m.call("d"), at=110.0),
    ),
    "unlinked": (*GRANTED, ev.LinksRevoked("c", "ana", "inbox", said_at=109.0), ev.LinksRevoked(said_at=110.0)),
    "metadata": (
        *GRANTED,
        ev.MetadataChanged((("title", None, "Rent"), ("draft", "yes", None)), "ana", "inbox", said_at=109.0),
    ),
    "rewound": (
        ev.Adopted(fork(fold((opened(), *asked(m.call("a")))), "copy", 104.0), "first", 1, "key-1", "ana", "inbox"),
    ),
    "revoked": (*GRANTED, ev.GrantRevoked("1/a", by="ana", at=109.0)),
    "crash": (
        opened(),
        *asked(m.call("a", "pure"), m.call("b"), m.call("c", "keyed")),
        ev.Started("a", at=103.0),
        ev.Started("b", at=103.0),
        ev.Started("c", at=103.0),
        ev.Ended("c", None, at=103.5),
        ev.Woken(m.setup(tool_timeout=3.0), driver="another", at=200.0),
    ),
    "request-lost": (opened(), ev.Requested(at=101.0), ev.Continued((m.user("hurry"),), at=102.0), ev.Woken(at=200.0)),
    "cancelled": (opened(), ev.Requested(at=101.0), ev.RequestFailed(at=102.0)),
    "failed": (
        opened(),
        ev.Requested(at=101.0),
        ev.RequestFailed(Failure("model", "slow down", 429, "rate_limit_error", True, 7.5, "req_2"), at=102.0),
        ev.Continued(at=103.0),
        ev.Requested(at=103.0),
        ev.RequestFailed(Failure("protocol", "cut off", retryable=True), at=104.0),
    ),
    "priced": (
        opened(limits=Limits(budget=Budget(cost=Decimal("0.25")))),
        *PRICED,
        ev.FollowedUp((m.user("and then?"),), at=103.0),
        ev.HistoryEdited((), "Summarize", 90, 90, SUMMED, "it saves nothing", at=104.0),
        ev.Requested(at=104.0),
        ev.RequestFailed(spent=CUT, at=105.0),
        ev.Requested(at=105.0),
        ev.Replied(m.make_replied("end_turn", m.text("so"), usage={"input_tokens": 1}).reply, costs=(COST,), at=106.0),
        ev.FollowedUp((m.user("more"),), at=107.0),
        ev.TurnEnded(at=107.0),
    ),
    "threaded": (
        opened(threads=True),
        ev.Requested(at=101.0),
        ev.Replied(
            m.make_replied("end_turn", m.text("so")).reply, 1.5, Thread("msg_1", 2, "f1"), at=102.5, seconds=1.5
        ),
        ev.FollowedUp((m.user("and then?"),), at=103.0),
        ev.Requested(at=103.0),
        ev.RequestFailed(thread=Thread(None, 0, "", "thread_not_found"), at=104.0),
        ev.Requested(at=104.0),
        ev.Replied(
            m.make_replied("end_turn", m.text("this")).reply,
            1.5,
            Thread("msg_2", 4, "f2", "thread_not_found"),
            at=105.5,
        ),
    ),
    "stopped": (opened(), *asked(m.call("a")), ev.Started("a", at=103.0), ev.Stopped("enough", at=104.0)),
    "followed-up": (
        opened(),
        ev.Requested(at=101.0),
        m.make_replied("end_turn", m.text("so")),
        ev.FollowedUp((m.user("and then?"),), at=102.0),
        ev.Requested(at=103.0),
    ),
    "kept": (
        opened(),
        *asked(m.call("a")),
        ev.Judged((("a", Wait(Why.APPROVAL)),), at=103.0),
        ev.Said("key-1", (m.user("in cash"), m.system()), "ana", "inbox", said_at=103.5),
        ev.Said("r4nd0m00001", (m.user("today"),), said_at=103.75),
        ev.Withdrawn("key-1", "bo", "page", said_at=104.0),
        ev.Said("key-2", (m.user("please"),), said_at=104.5),
    ),
    "kept-sent": (
        opened(),
        ev.Requested(at=101.0),
        ev.Said("key-1", (m.user("in cash"),), "ana", "inbox", said_at=101.5),
        ev.Continued((m.user("today"),), at=102.0),
        m.make_replied("end_turn", m.text("so")),
        ev.Requested(at=103.0),
        m.make_replied("max_tokens", m.text("th")),
        ev.Said("key-2", (m.user("go on"),), said_at=104.0),
    ),
    "extended": (
        opened(limits=Limits(max_iterations=1, budget=Budget(tool_calls=5))),
        *asked(m.call("a", "pure")),
        *ran("a"),
        *CLOSED,
        ev.TurnEnded(at=107.0),
        ev.Changed(limits=Limits(max_iterations=None, timeout=30.0), at=108.0),
    ),
    "paused": (opened(), ev.Requested(at=101.0), m.make_replied("pause_turn", *SERVED, container={"id": "c"})),
    "forked": (
        ev.Adopted(fork(fold((opened(), *asked(m.call("a")), ev.Started("a", at=103.0))), "copy", 104.0), at=104.0),
        ev.Stopped(at=105.0),
    ),
    "restored": (
        *(opened(), *asked(m.call("a"), m.call("b"))),
        ev.Started("a", at=103.0),
        ev.Restored((("b", 1, 1),), "ana", "command", at=104.0),
    ),
    **NESTED,
    **EDITED,
    **DECIDING,
    **RARE,
}


def files() -> list[Path]:
    return sorted(GOLDEN.glob("journal-*.json"))


def written(story: tuple[ev.Event, ...]) -> list[Any]:
    """Return the entries of a story as a golden file has them: the body and, if there is one, the text."""
    entries = [encode_event("id", event) for event in story]
    return [{"body": entry.body} | ({} if entry.text is None else {"text": entry.text}) for entry in entries]


def as_recorded(state: State, snapshot: dict[str, Any]) -> State:
    """A state without the marks of the loop's own messages if its snapshot has none, because it is older than these."""
    if any("own" in loop for loop in snapshot["loops"]):
        return state
    return State({path: loop._replace(own=()) for path, loop in state.loops.items()})


def test_every_story_has_its_file() -> None:
    """And the stories have every class of event."""
    assert {path.name for path in files()} >= {f"journal-{FORMAT}-{name}.json" for name in STORIES}
    assert {type(event).__name__ for story in STORIES.values() for event in story} == EVENTS.keys()


@each("path", files())
def test_a_golden_journal_leads_where_it_led(path: Path) -> None:
    """To the state of the snapshot beside it. Snapshots of earlier formats have no ids of messages."""
    golden = json.loads(path.read_text("utf-8"))
    entries = [Entry(str(at), **entry) for at, entry in enumerate(golden["journal"])]
    read = as_recorded(read_journal(entries), golden["snapshot"])
    if golden["snapshot"]["format"] < FORMAT:
        loops = read.loops.items()
        read = State({path: loop._replace(ids=Chain(), requests=0, named=0) for path, loop in loops})
    assert read == load(golden["snapshot"])


@each("name", STORIES)
def test_the_writer_writes_what_the_golden_journal_of_its_format_holds(name: str) -> None:
    """A change of the newest format shows here: then it is a new format, with files of its own."""
    golden = json.loads((GOLDEN / f"journal-{FORMAT}-{name}.json").read_text("utf-8"))
    assert written(STORIES[name]) == golden["journal"]
    state = as_recorded(fold(STORIES[name]), golden["snapshot"])
    assert json.loads(json.dumps(dump(state))) == golden["snapshot"]


def write_golden_files() -> None:
    """Write the files of the newest format that are not there yet: none is ever edited."""
    for name, story in STORIES.items():
        path = GOLDEN / f"journal-{FORMAT}-{name}.json"
        if not path.exists():
            golden = {"snapshot": dump(fold(story)), "journal": written(story)}
            path.write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    write_golden_files()
