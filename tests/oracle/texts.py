"""What the model is told when a call has no result of its own: distinct, and true. One constant each."""

from __future__ import annotations

from attrs import frozen

from tests.oracle.jsontext import well_formed

# The places in braces that each text may have, with what might stand there.
PLACES: dict[str, dict[str, str]] = {
    "denied": {"reason": "not today"},
    "not_run": {},
    "cancelled": {},
    "uncertain": {"reason": "nobody knows"},
    "unknown_tool": {"name": "add", "known": "sub, mul"},
    "tool_gone": {"name": "add"},
    "invalid_input": {"name": "add", "problems": "a: expected a number"},
    "timed_out": {"seconds": "30"},
    "left_behind": {"seconds": "30"},
    "failed": {"error": "ValueError: no"},
    "edited": {"id": "toolu_1", "name": "add", "input": "{}"},
    "expired": {},
    "loop_warning": {"name": "search", "count": "3"},
    "no_answer": {"reason": "it was refused"},
    "cut_short": {"reason": "max iterations", "text": "So far"},
}


@frozen
class Texts:
    """The texts the model sees. Each is a format string; only its own names in braces are filled in.

    Give another one as `LoopConfig(texts=Texts(denied="Not allowed: {reason}"))`. None may be blank: the API refuses an
    error without a text.
    """

    denied: str = "This call was denied and did not run. Reason: {reason}"
    not_run: str = "This call was not run: the loop stopped before it started."
    cancelled: str = "This call was cancelled while it ran. It may have had effects."
    uncertain: str = "This call was started, and nobody saw it end. It may have had effects. Note: {reason}"
    unknown_tool: str = "There is no tool named {name!r}. The tools are: {known}."
    tool_gone: str = "The tool {name!r} is no longer there. This call did not run."
    invalid_input: str = "The input does not fit the schema of {name}, so the call did not run. {problems}"
    timed_out: str = "This call took longer than {seconds} seconds and was cancelled. It may have had effects."
    left_behind: str = (
        "This call took longer than {seconds} seconds, and nobody waits for it any more. It may still be running, and "
        "may have effects."
    )
    failed: str = "{error}"
    edited: str = "Note: the call {id} ({name}) ran with another input than the one you gave: {input}"
    expired: str = "This call expired: nobody decided on it in time, and it did not run here."
    loop_warning: str = (
        "You called {name} {count} times in a row with identical arguments. If that brings you no further, try "
        "something else, or say what stands in the way."
    )
    no_answer: str = "The loop inside this call came to an end without an answer: {reason}."
    cut_short: str = "The loop inside this call was cut short: {reason}. Its last words were: {text}"


def say(texts: Texts, which: str, /, **places: object) -> str:
    """One of the texts, filled in. Where a filled one would be blank, or cannot be filled in, the usual one is said."""
    try:
        text: str = getattr(texts, which).format(**places)
    except (LookupError, ValueError, AttributeError):
        text = ""
    return well_formed(text if text.strip() else str(getattr(Texts(), which).format(**places)))
