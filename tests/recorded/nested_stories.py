"""Stories of loops inside of calls, and of loops that go in circles, for the golden journals."""

from __future__ import annotations

import json

from attrs import evolve

from tests.kit.machine import making as m
from toolloop._usage import IterationUsage, Usage
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Failure
from toolloop.machine.record.replies import read_reply
from toolloop.machine.tree import fold, fork
from toolloop.machine.values.calls import DecisionRecord, Result, Wait, Why
from toolloop.machine.values.jsontext import encode
from toolloop.machine.values.setup import Budget, Limits, LoopDetection

Story = tuple[ev.Event, ...]
DONE = Result(encode("done"))
BY_ANA = DecisionRecord("approve", by="ana", at=110.0)


def at(path: str, *events: ev.Event, since: float = 101.0) -> Story:
    """The same events, said of the loop at a path, a second after another."""
    where = tuple(path.split("/")) if path else ()
    return tuple(evolve(event, path=where, at=since + number) for number, event in enumerate(events))


def asked(*calls: object, tokens: int = 9) -> Story:
    """A request, and a reply with calls."""
    body = {"content": [m.text("Grüße"), *calls], "stop_reason": "tool_use", "usage": {"input_tokens": tokens}}
    reply = read_reply(body, text=json.dumps(body, ensure_ascii=False), request_id="req_1")
    return (ev.Requested(), ev.Replied(reply, seconds=1.5, took=2.5))


def opened(path: str, **changes: object) -> ev.Opened:
    """A loop begins inside of a call of the first round of the one above."""
    names = tuple(path.split("/"))
    setup = m.setup(depth=len(names), within=tuple((1, name, 1) for name in names), **changes)
    return ev.Opened(setup, (m.user(f"task of {path}"),), path=names, at=103.0)


def ran(call_id: str, text: str = "done") -> Story:
    return (ev.Started(call_id, "d1"), ev.Ended(call_id, Result(encode(text)), took=0.25, iteration=1, attempt=1))


BEGIN: Story = (ev.Opened(m.setup(), (m.user(),), at=100.0),)
TWO: Story = (*BEGIN, *at("", *asked(m.call("p", "keyed"), m.call("q", "keyed"))), opened("p"), opened("q"))
# A call of `p` runs, and in another of its calls a loop has begun; `q` waits for its reply.
TREE: Story = (
    *TWO,
    *at("p", *asked(m.call("a", "pure"), m.call("p", "pure"), tokens=20), ev.Started("a", "d2")),
    opened("p/p"),
    *at("p/p", *asked(m.call("a", "pure"), tokens=30), *ran("a"), since=106.0),
    *at("q", ev.Requested(), since=110.0),
)
WAITING: Story = (
    *TWO,
    *at("p", *asked(m.call("a")), ev.Judged((("a", Wait(Why.APPROVAL)),)), since=104.0),
    *at("q", *asked(m.call("a"), m.call("b")), ev.Judged((("a", Wait(Why.APPROVAL)),)), since=104.0),
    *at("", ev.TurnEnded(), since=107.0),
)
FAILED: Story = (
    *BEGIN,
    *at("", *asked(m.call("p", "keyed"))),
    opened("p"),
    *at("p", ev.Requested(), ev.RequestFailed(Failure("model", "slow down", 429, retryable=True)), since=104.0),
    *at("", ev.TurnEnded(), since=106.0),
)
LIMITED: Story = (
    ev.Opened(m.setup(limits=Limits(budget=Budget(requests=2))), (m.user(),), at=100.0),
    *at("", *asked(m.call("p", "keyed"))),
    opened("p"),
    *at("p", *asked(m.call("a", "pure")), *ran("a"), ev.TurnEnded(), since=104.0),
    *at("", ev.TurnEnded(), since=110.0),
)
CIRCLING: Story = (
    ev.Opened(m.setup(loop_detection=LoopDetection(2, "inject_warning")), (m.user(),), at=100.0),
    *at("", *asked(m.call("a", "pure")), *ran("a"), ev.TurnEnded(), ev.Continued()),
    *at("", *asked(m.call("b", "pure")), ev.Judged(), since=110.0),
)

NESTED: dict[str, Story] = {
    "nested": TREE,
    "nested-over": (
        *TREE,
        *at("q", m.make_replied("end_turn", m.text("found")), since=111.0),
        *at("", ev.Ended("q", Result('"found"'), iteration=1, attempt=1), since=112.0),
        *at("p/p", ev.TurnEnded(), ev.Requested(), m.make_replied("end_turn", m.text("so")), since=113.0),
    ),
    "nested-waiting": WAITING,
    "nested-decided": (
        *WAITING,
        ev.Decided((("p/a", BY_ANA), ("q/a", DecisionRecord("deny", by="bo", reason="no", at=110.0))), at=110.0),
        ev.Continued(at=111.0),
        *at("p", *ran("a"), since=112.0),
    ),
    "nested-failed": FAILED,
    "nested-retried": (*FAILED, ev.Continued(at=107.0), *at("p", ev.Requested(), since=108.0)),
    "nested-limit": LIMITED,
    "nested-extended": (*LIMITED, ev.Changed(limits=Limits(), at=111.0), *at("p", ev.Requested(), since=112.0)),
    "nested-asleep": (
        *TREE,
        ev.Woken(driver="another", at=200.0),
        ev.Woken(evolve(opened("p").setup, tool_timeout=3.0), driver="another", at=200.0, path=("p",)),
    ),
    "nested-stopped": (*WAITING, ev.Stopped("enough", at=110.0)),
    "nested-forked": (ev.Adopted(fork(fold(WAITING), "copy", 120.0), at=120.0), ev.Stopped(at=121.0)),
    "spent": (
        *BEGIN,
        *at("", *asked(m.call("a", "pure")), ev.Started("a", "d1")),
        ev.Ended("a", DONE, spent=(IterationUsage(1, "m", "end_turn", "req_2", Usage(3, 4), 1.25, ("b",)),), at=105.0),
    ),
    "circling": CIRCLING,
}
