"""Stories of decisions: before calls had demands, which must be read as they were, and since then."""

from __future__ import annotations

import json
from typing import Any

from attrs import evolve

from tests.kit.machine import making as m
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.replies import read_reply
from toolloop.machine.rules.calls import digest_of
from toolloop.machine.values.calls import Call, DecisionRecord, GrantSpec, Result, Wait, Why
from toolloop.machine.values.demands import Demand
from toolloop.machine.values.jsontext import encode
from toolloop.machine.values.setup import Budget, Limits, ToolFacts

RERUN = DecisionRecord("rerun", by="ana", at=106.0)
EDIT = DecisionRecord("approve", '{"a":2}', by="ana", at=104.0)
YES = DecisionRecord("approve", by="ana", at=104.0)
ASKS = Wait(Why.APPROVAL)
DONE = Result(encode("done"))
TAKEN = encode({"role": "assistant", "content": [m.call("a"), m.call("b")]})


def begun(*calls: object, **changes: object) -> tuple[ev.Event, ...]:
    return (ev.Opened(m.setup(**changes), (m.user("hi"),), at=100.0), *replied(*calls))


def replied(*calls: object) -> tuple[ev.Event, ...]:
    body = {"content": list(calls), "stop_reason": "tool_use", "usage": {"input_tokens": 9}, "model": "m"}
    return (ev.Requested(at=101.0), ev.Replied(read_reply(body, text=json.dumps(body)), 1.0, at=102.0))


def asked(wait: Wait, *names: str, at: float = 103.0) -> ev.Judged:
    return ev.Judged(tuple((name, wait) for name in names), at=at)


def decided(at: float = 104.0, **decisions: DecisionRecord) -> ev.Decided:
    return ev.Decided(tuple(decisions.items()), at=at)


LOST = (ev.Started("a", at=103.0), ev.Woken(at=104.0), ev.TurnEnded(at=105.0))
AGAIN = (ev.Started("a", at=107.0), ev.Ended("a", DONE, iteration=1, attempt=2, at=108.0))
WAITING = (*begun(m.call("a")), asked(ASKS, "a"))

TAKEN_PURE = encode({"role": "assistant", "content": [m.call("a", "pure"), m.call("b", "pure")]})

# --- with demands ----------------------------------------------------------------------------------------------------

TWO = Demand(2, reason="above 1,000", remind_after=(60.0, 600.0))
FINANCE = Demand(of=("finance",), not_by=("eve",), fresh=True, rule="large", rule_digest="d1", expires_in=900.0)
EDIT_FILE = ToolFacts("edit", "once", "never", "d4", diff=("old", "new"), path="file", secret=("token",))
FAILED = Demand(fresh=True, reason="the policy raised OSError", failed=True)


def yes(by: str, *groups: str, at: float = 104.0, **more: Any) -> DecisionRecord:
    parts: dict[str, Any] = {"kind": "approve", "by": by, "groups": groups, "at": at, "via": "inbox"}
    return DecisionRecord(**(parts | more))


def bound(call_id: str, text: str | None = None, attempts: int = 0) -> str:
    """The digest of a call of the tool `once` in the first round."""
    call = Call(call_id, "once", '{"a":1}', edited=text, attempts=attempts)
    return digest_of(m.setup(), 1, call)


DEMANDED: dict[str, tuple[ev.Event, ...]] = {
    "approved": (
        *(*begun(m.call("a"), m.call("b")), asked(Wait(Why.APPROVAL, demands=(TWO,)), "a", "b")),
        ev.Approved((("a", yes("ana", digest=bound("a"))), ("b", yes("ana", kind="deny", reason="no")))),
        ev.Decided((("a", yes("bo", digest=bound("a"), via="x-chat")),)),
        *(ev.Continued(at=105.0), ev.Started("a", at=105.0)),
    ),
    "demands": (
        *(*begun(m.call("a")), asked(Wait(Why.APPROVAL, "large", demands=(FINANCE, TWO)), "a")),
        ev.Approved((("a", yes("ana", "finance", "board", digest=bound("a"))),)),
        *(ev.Woken(at=110.0), ev.Ticked(at=200.0)),
    ),
    "edited-again": (
        *(*WAITING, ev.Decided((("a", yes("ana", content='{"a":2}')),)), ev.Continued(at=104.0)),
        asked(Wait(Why.APPROVAL, demands=(FAILED, TWO)), "a", at=105.0),
        ev.Approved((("a", yes("bo", content='{"a":3}', digest=bound("a", '{"a":2}'), at=106.0)),)),
    ),
    "rerun-counted": (
        *(*begun(m.call("a")), asked(Wait(Why.APPROVAL, demands=(TWO,)), "a")),
        ev.Approved((("a", yes("ana", digest=bound("a"))),)),
        *(ev.Decided((("a", yes("bo", digest=bound("a"))),)), ev.Continued(at=104.0), *LOST[:1]),
        *(ev.Woken(at=106.0), ev.TurnEnded(at=106.0)),
        ev.Approved((("a", yes("cy", kind="rerun", digest=bound("a", attempts=1), at=107.0)),)),
        ev.Decided((("a", yes("ana", kind="rerun", digest=bound("a", attempts=1), at=108.0)),)),
        *(ev.Continued(at=109.0), asked(Wait(Why.APPROVAL, demands=(TWO,)), "a", at=109.0), ev.Started("a", at=110.0)),
    ),
    "woken-changed-tools": (
        *(*begun(m.call("a"), m.call("b")), asked(Wait(Why.APPROVAL, demands=(TWO,)), "a", "b")),
        ev.Approved((("a", yes("ana", digest=bound("a"))), ("b", yes("ana", digest=bound("b"))))),
        ev.Decided((("b", yes("bo", digest=bound("b"))),)),
        ev.Woken(m.setup(tools=m.OTHER_TOOLS), "another", ("once",), at=105.0),
        *(ev.Approved((("b", yes("cy", digest=bound("b"))),)), ev.Stopped(at=106.0)),
    ),
    "shown": (
        *begun(m.call("a", "edit"), tools=(EDIT_FILE,)),
        *(ev.Started("a", at=103.0), ev.Woken(m.setup(gone_secrets=(("edit", ("token",)),)), at=104.0)),
        ev.TurnEnded(previews=(("a", "edits x"),)),
    ),
    "taken-again": (
        *(*begun(m.call("a"), m.call("b")), asked(ASKS, "a", "b"), decided(a=YES, b=YES), ev.Continued(at=104.0)),
        *(ev.Started("a"), ev.Ended("a", DONE, at=105.0)),
        ev.HistoryTaken((), TAKEN, rerun=("a",), via="handle", at=106.0),
        *(asked(ASKS, "a", at=107.0), ev.Started("a"), ev.Started("b")),
    ),
    "said": (
        *WAITING,
        ev.Decided((("a", yes("ana", remember=GrantSpec(), at=150.0)),)),
        ev.GrantRevoked("1/a", "ana", "x-chat", said_at=151.0),
        ev.Continued(by="bo", via="inbox", said_at=152.0),
        ev.Changed(limits=Limits(max_iterations=5), by="cy", via="handle", at=110.0),
        ev.Stopped("enough", "dee", "link", said_at=86_400.0),
        ev.FollowedUp((m.user("and now?"),), by="eve", via="page", said_at=160.0),
    ),
    "grant-of-group": (
        *(*WAITING, decided(a=yes("ana", "finance", remember=GrantSpec(uses=1))), ev.Continued(at=104.0)),
        *(ev.Started("a"), ev.Ended("a", DONE, at=105.0), ev.TurnEnded(at=105.0), ev.Continued(at=106.0)),
        *(*replied(m.call("b")), asked(Wait(Why.APPROVAL, demands=(Demand(of=("finance",)),)), "b", at=109.0)),
        ev.Started("b"),
    ),
}

# --- as they were written before -------------------------------------------------------------------------------------

DECIDING: dict[str, tuple[ev.Event, ...]] = {
    **DEMANDED,
    "rerun": (*begun(m.call("a")), *LOST, decided(106.0, a=RERUN), ev.Continued(at=106.0), *AGAIN),
    "rerun-limit": (
        *begun(m.call("a"), limits=Limits(budget=Budget(tool_calls=1))),
        *(*LOST, decided(106.0, a=RERUN), ev.Continued(at=106.0), ev.TurnEnded(at=107.0)),
    ),
    "rerun-asked": (
        *(*WAITING, decided(a=YES), ev.Continued(at=104.0)),
        *(ev.Started("a", at=105.0), ev.Woken(at=105.5), ev.TurnEnded(at=105.6)),
        *(decided(106.0, a=RERUN), ev.Continued(at=106.0), *AGAIN),
    ),
    "edit-judged": (*WAITING, decided(a=EDIT), ev.Continued(at=104.0), asked(ASKS, "a", at=105.0), ev.Started("a")),
    "edit-fresh": (
        *(*WAITING, decided(a=EDIT), ev.Continued(at=104.0)),
        *(asked(Wait(Why.APPROVAL, "large", fresh=True), "a", at=105.0), ev.Started("a")),
    ),
    "approved-woken": (
        *(*WAITING, decided(a=YES), ev.Continued(at=104.0), ev.Woken(at=105.0)),
        *(asked(Wait(Why.APPROVAL, "stricter", fresh=True), "a", at=106.0), ev.Started("a")),
    ),
    "policy-edit-woken": (
        *begun(m.call("a")),
        ev.Judged((("a", DecisionRecord("approve", '{"a":9}', at=103.0)),), at=103.0),
        *(ev.Woken(at=104.0), asked(ASKS, "a", at=105.0), decided(106.0, a=YES), ev.Continued(at=106.0)),
        ev.Started("a"),
    ),
    "decided-late": (  # the decision on `b` brings the time at which `a` expires
        *begun(m.call("a"), m.call("b"), m.call("c", "pure"), execution="ready"),
        ev.Judged((("a", Wait(Why.APPROVAL, expires_in=2.0)), ("b", ASKS)), at=103.0),
        *(ev.Continued(at=104.0), ev.Started("c"), decided(106.0, b=evolve(YES, at=106.0))),
        *(ev.Ended("c", DONE), ev.TurnEnded(), ev.Continued(at=107.0), ev.Started("b")),
    ),
    "grant-woken": (
        *(*WAITING, decided(a=evolve(YES, remember=GrantSpec(uses=1))), ev.Continued(at=104.0), ev.Started("a")),
        *(ev.Ended("a", DONE, at=105.0), ev.TurnEnded(at=105.0), ev.Continued(at=106.0), *replied(m.call("b"))),
        *(asked(ASKS, "b", at=109.0), ev.Woken(at=110.0), asked(ASKS, "b", at=111.0), ev.Started("b")),
    ),
    "taken-rerun-nested": (  # no policy judges the order, so the loop inside `b` goes on
        *(*begun(m.call("a", "pure"), m.call("b", "pure")), ev.Started("a", at=103.0)),
        ev.Opened(m.setup(depth=1, within=((1, "b", 1),)), (m.user("task"),), path=("b",), at=103.5),
        ev.Ended("a", DONE, at=104.0),
        ev.HistoryTaken((), TAKEN_PURE, rerun=("a",), at=106.0),
        *(ev.Requested(path=("b",)), ev.RequestFailed(path=("b",), at=107.0), ev.Started("a")),
    ),
    "taken-rerun": (
        *(*begun(m.call("a"), m.call("b")), asked(ASKS, "a", "b"), decided(a=YES, b=YES), ev.Continued(at=104.0)),
        *(ev.Started("a"), ev.Ended("a", DONE, at=105.0), ev.HistoryTaken((), TAKEN, rerun=("a",), at=106.0)),
        *(ev.Judged(at=107.0), ev.Started("a"), ev.Started("b")),
    ),
}
