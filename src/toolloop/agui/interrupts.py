"""Ask a person about the calls that wait, as interrupts of AG-UI, and read the answers."""

from __future__ import annotations

from collections.abc import Mapping

from ag_ui.core import ResumeEntry

from toolloop import Answer, Approve, Deny, Rerun
from toolloop.agui.conversation import Event
from toolloop.errors import DecisionConflict
from toolloop.inbox import Offer
from toolloop.types import JSON, Decision, PendingView, Standing

_SHOWN = ("why", "path", "names", "input", "preview")  # of a call, for an app that shows it in its own way
_UNKNOWN = "no interrupt of this server has this id"
_EXPECTED = 'expected {"approved": true} or another answer that the responseSchema allows'
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
    properties: dict[str, JSON] = {"reason": {"type": "string", "description": "Why. The model reads it."}}
    if approved := [each for each, kind in ((True, "approve"), (False, "deny")) if kind in takes]:
        properties["approved"] = {"type": "boolean", "enum": approved}
    if "edit" in takes:
        properties["editedArgs"] = schema
    if "rerun" in takes:
        properties["rerun"] = {"type": "boolean", "enum": [True]}
    if "answer" in takes:
        properties["answer"] = {"type": "string", "description": "How it ended, or its result."}
    return {"type": "object", "properties": properties, "required": ["approved"] if "approve" in takes else []}


def read_answer(entry: ResumeEntry, offers: Mapping[str, Offer]) -> tuple[str, Decision]:
    """Return the path of the call that an answer is about, and the decision, bound to what was shown.

    `offers`: what the person may do with the calls that wait, by digest. The inbox refuses what it must; here, also an
    edit of values that are hidden, and an answer instead of an approval.

    Raises:
        ValueError: the answer is not one that an interrupt asks for.

    """
    path, _, digest = entry.interrupt_id.rpartition("#")
    if not (path and digest):
        raise ValueError(_UNKNOWN)
    kinds = offers[digest].kinds if digest in offers else {"edit", "answer"}
    if entry.status == "cancelled":
        return path, Deny("The user dismissed the question.", digest=digest)
    given = entry.payload if isinstance(entry.payload, dict) else {}
    match {"reason": None, "editedArgs": None, **given}:
        case {"approved": True, "editedArgs": dict(edited), "reason": str(why) | (None as why)} if "edit" in kinds:
            return path, Approve(input=edited, reason=why, digest=digest)
        case {"approved": True, "editedArgs": None, "reason": str(why) | (None as why)}:
            return path, Approve(reason=why, digest=digest)
        case {"approved": False, "reason": str(why) | (None as why)}:
            return path, Deny(why or "The user said no.", digest=digest)
        case {"rerun": True} if "approved" not in given:
            return path, Rerun(digest=digest)
        case {"answer": str(text)} if "answer" in kinds and "approved" not in given:
            return path, Answer(text, digest=digest)
    raise ValueError(_EXPECTED)


def why_not(outcome: Standing | Exception) -> Event | None:
    """Return why an answer was not applied, and which decision stands; None if it was applied."""
    match outcome:
        case Standing(is_yours=True):
            return None
        case Standing(kind=kind):
            why = "another person has decided this already"
        case DecisionConflict(decision=kind) if kind is not None:
            why = str(outcome)
        case _:
            return {"why": str(outcome)}
    at = None if outcome.at is None else outcome.at.isoformat()
    return {"why": why, "stands": {"kind": kind, "by": outcome.by, "at": at}}
