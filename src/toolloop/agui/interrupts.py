"""Ask a person about the calls that wait, as interrupts of AG-UI, and read the answers."""

from __future__ import annotations

from collections.abc import Mapping

from ag_ui.core import ResumeEntry

from toolloop._interface.loop_view import PendingView
from toolloop._interface.standing import Standing
from toolloop.agui.terms import Event
from toolloop.errors import DecisionConflict
from toolloop.inbox import Offer
from toolloop.machine.values.calls import Answer, Approve, Decision, Deny, Rerun
from toolloop.machine.values.jsontext import JSON

_SHOWN = ("why", "path", "names", "input", "preview")  # of a call, for an app that shows it in its own way
_EXPECTED = 'expected {"approved": true} or another answer that the responseSchema allows'
_REASON: dict[str, JSON] = {"type": "string", "description": "Why. The model reads it."}
_REASONS = {"approval": "tool_call", "external": "input_required", "uncertain": "toolloop:uncertain"}
_QUESTIONS = {
    "approval": "Run {}?",
    "external": "{} waits for your answer.",
    "uncertain": "{} was started, and its end is unknown. Run it again, or say how it ended.",
}


def make_interrupt(call: PendingView, offer: Offer, schema: JSON) -> Event:
    """Return the interrupt for a call. Its id has the path, and the digest, which binds the answer to what is shown.

    Args:
        call: the call.
        offer: what the person may do with it.
        schema: the JSON Schema of its input.

    """
    why, tool = str(call["why"]), " > ".join(call["names"])
    lines = [call["reason"] or _QUESTIONS[why].format(tool), offer.needs]
    shown = {name: value for name, value in call.items() if name in _SHOWN}
    return {
        "id": f"{'/'.join(call['path'])}#{call['digest']}",
        "reason": _REASONS[why],
        "message": "\n".join(filter(None, lines)),
        "toolCallId": call["id"],
        "responseSchema": _schema(offer.kinds, schema),
        **({"expiresAt": call["expires_at"]} if call["expires_at"] else {}),
        "metadata": {"toolloop": {**shown, "takes": sorted(offer.kinds & {*call["takes"]})}},
    }


def _schema(takes: frozenset[str], schema: JSON) -> dict[str, JSON]:
    approved = [each for each, kind in ((True, "approve"), (False, "deny")) if kind in takes]
    fields: dict[str, JSON] = {
        "approved": {"type": "boolean", "enum": approved} if approved else None,
        "editedArgs": schema if "edit" in takes else None,
        "rerun": {"type": "boolean", "enum": [True]} if "rerun" in takes else None,
        "answer": {"type": "string", "description": "How it ended, or its result."} if "answer" in takes else None,
        "reason": _REASON,
    }
    properties = {name: each for name, each in fields.items() if each is not None}
    return {"type": "object", "properties": properties, "required": ["approved"] if "approve" in takes else []}


def read_answer(entry: ResumeEntry, offers: Mapping[str, Offer]) -> tuple[str, Decision]:
    """Return the path of the call that an answer is about, and the decision, bound to what was shown.

    `offers`: what the person may do with the calls that wait, by digest.

    Raises:
        ValueError: the answer is not one that an interrupt asks for.

    """
    path, digest, decision = _read(entry)
    is_edit = isinstance(decision, Approve) and decision.input is not None
    kinds = {"edit"} if is_edit else {"answer"} if isinstance(decision, Answer) else set[str]()
    if digest in offers and not kinds <= offers[digest].kinds:
        raise ValueError(_EXPECTED)
    return path, decision


def _read(entry: ResumeEntry) -> tuple[str, str, Decision]:
    path, _, digest = entry.interrupt_id.rpartition("#")
    payload = entry.payload if isinstance(entry.payload, dict) else {}
    reason, edited = payload.get("reason"), payload.get("editedArgs")
    if not (path and digest and isinstance(reason, str | None) and isinstance(edited, dict | None)):
        raise ValueError(
            "no interrupt of this server has this id, or reason is not a text, or editedArgs not an object"
        )
    if entry.status == "cancelled":
        return path, digest, Deny("The user dismissed the question.", digest=digest)
    match payload:
        case {"approved": True}:
            return path, digest, Approve(input=edited, reason=reason, digest=digest)
        case {"approved": False}:
            return path, digest, Deny(reason or "The user said no.", digest=digest)
        case {"rerun": True}:
            return path, digest, Rerun(digest=digest)
        case {"answer": str(text)}:
            return path, digest, Answer(text, digest=digest)
    raise ValueError(_EXPECTED)


def note_of(entry_id: str, outcome: Standing | Exception) -> Event | None:
    """Return why an answer was not applied, and which decision stands; None if it was applied."""
    if isinstance(outcome, Standing) and outcome.is_yours:
        return None
    note: Event = {"what": "resume", "id": entry_id, "why": str(outcome)}
    if isinstance(outcome, Standing):
        note["why"] = "another person has decided this already"
        note["stands"] = {"kind": outcome.kind, "by": outcome.by, "at": outcome.at.isoformat()}
    elif isinstance(outcome, DecisionConflict) and outcome.decision is not None:
        at = None if outcome.at is None else outcome.at.isoformat()
        note["stands"] = {"kind": outcome.decision, "by": outcome.by, "at": at}
    return note
