"""Ask a person about the calls that wait, as interrupts of AG-UI, and read the answers."""

from __future__ import annotations

from collections.abc import Mapping

from ag_ui.core import ResumeEntry

from toolloop._interface.loop_view import PendingView
from toolloop._interface.standing import Standing
from toolloop.agui.terms import Event
from toolloop.errors import DecisionConflict
from toolloop.inbox.rights.links import kind_of
from toolloop.machine.values.calls import Answer, Approve, Decision, Deny, Rerun
from toolloop.machine.values.jsontext import JSON

_EXPECTED = 'expected {"approved": true} or another answer that the responseSchema allows'
_REASON: dict[str, JSON] = {"type": "string", "description": "Why. The model reads it."}
_REASONS = {"approval": "tool_call", "external": "input_required", "uncertain": "toolloop:uncertain"}
_QUESTIONS = {
    "approval": "Run {}?",
    "external": "{} waits for your answer.",
    "uncertain": "{} was started, and its end is unknown. Run it again, or say how it ended.",
}


def make_interrupt(call: PendingView, takes: frozenset[str], schema: JSON, progress: str) -> Event:
    """Return the interrupt for a call. Its id has the path, and the digest, which binds the answer to what is shown.

    Args:
        call: the call.
        takes: the decisions that are offered.
        schema: the JSON Schema of its input; None if that cannot be edited.
        progress: which approvals are missing; empty if one of any person is enough.

    """
    why, tool = str(call["why"]), " > ".join(call["names"])
    lines = [call["reason"] or _QUESTIONS[why].format(tool), progress]
    shown = {
        "why": why,
        "path": call["path"],
        "names": call["names"],
        "input": call["input"],
        "preview": call["preview"],
    }
    return {
        "id": f"{'/'.join(call['path'])}#{call['digest']}",
        "reason": _REASONS[why],
        "message": "\n".join(filter(None, lines)),
        "toolCallId": call["id"],
        "responseSchema": _schema(takes, schema),
        **({"expiresAt": call["expires_at"]} if call["expires_at"] else {}),
        "metadata": {"toolloop": {**shown, "takes": sorted(takes)}},
    }


def _schema(takes: frozenset[str], schema: JSON) -> dict[str, JSON]:
    approved = [each for each, kind in ((True, "approve"), (False, "deny")) if kind in takes]
    fields: dict[str, JSON] = {
        "approved": {"type": "boolean", "enum": approved} if approved else None,
        "editedArgs": schema if "approve" in takes else None,
        "rerun": {"type": "boolean", "enum": [True]} if "rerun" in takes else None,
        "answer": {"type": "string", "description": "How it ended, or its result."} if "answer" in takes else None,
        "reason": _REASON,
    }
    properties = {name: each for name, each in fields.items() if each is not None}
    return {"type": "object", "properties": properties, "required": ["approved"] if "approve" in takes else []}


def list_kinds(call: PendingView) -> list[str]:
    """Return the decisions that clients may make. They give no results of tools of the server that did not start."""
    return [kind for kind in call["takes"] if not (kind == "answer" and call["why"] == "approval")]


def read_answer(entry: ResumeEntry, waiting: Mapping[str, PendingView]) -> tuple[str, Decision]:
    """Return the path of the call that an answer is about, and the decision, bound to what was shown.

    `waiting`: the calls that wait, by digest.

    Raises:
        ValueError: the answer is not one that an interrupt asks for.

    """
    path, digest, decision = _read(entry)
    if digest in waiting and kind_of(decision) not in list_kinds(waiting[digest]):
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
