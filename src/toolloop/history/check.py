"""Whether the API would take a history."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from toolloop.history.images import check_images
from toolloop.history.models import takes_system_messages
from toolloop.history.pairing import check_open_calls, check_pairing
from toolloop.history.parameters import check_parameters, check_references
from toolloop.history.plainness import HALF_A_PAIR, readable
from toolloop.history.reading import after_compaction, is_directive, message_path, role_of, runs_of
from toolloop.history.rules import Findings, Problem
from toolloop.history.shape import check_shape
from toolloop.history.turns import check_turns


def check(messages: Any, *, model: str | None = None, tools: Any = None, thinking: Any = None) -> list[Problem]:
    """Find what the API would refuse in a history, as far as that can be known without it.

    The history is judged as what a request would send: one that ends in an assistant message is refused by models that
    take no prefill. Never raises, whatever it is given; the time it takes grows with the history, not faster.

    Args:
        messages: plain JSON values; indices in the problems are those of this list.
        model: the id of the model; without it, or if it is unknown, what depends on the model is not judged.
        tools: the definitions that go with it; None means unknown.
        thinking: the `thinking` parameter of the request.

    Returns:
        The problems, those of tools and thinking first, then those of shape. Those of the level `error` are certain.

    """
    findings = Findings()
    request = {"model": readable(model)[0], "tools": readable(tools)[0], "thinking": readable(thinking)[0]}
    check_parameters(findings, **request)
    plain = _plain(messages, findings)
    check_shape(plain, findings)
    if isinstance(plain, list):
        _order(plain, findings, **request)
        runs = runs_of(plain)
        check_references(runs, findings, tools=request["tools"])
        check_images(runs, findings, model=request["model"])
    return findings.problems


def _plain(messages: Any, findings: Findings) -> Any:
    """The messages as the checks may read them; what no request can carry is found here."""
    kind = type(messages)
    if not issubclass(kind, list | tuple):
        return readable(messages)[0]
    plain = []
    items = list.__iter__(messages) if issubclass(kind, list) else tuple.__iter__(messages)
    for number, message in enumerate(items):
        copy, flaw = readable(message)
        plain.append(copy)
        if flaw is not None:
            # Half a pair in the model's own words came from the API, and goes back as an escape.
            own = role_of(copy) == "assistant" and HALF_A_PAIR in flaw
            findings.add("not-encodable", message_path(number), flaw, level="warning" if own else None)
    return plain


def _order(messages: list[Any], findings: Findings, **request: Any) -> None:
    """Check what is between the messages.

    Whether a message that only sets `output_config` parts the turns around it nobody knows but the API: what is wrong
    only if it does, or only if it does not, is a warning.
    """
    whole = _read(messages, parting=False, **request)
    directives = [number for number, message in enumerate(messages) if is_directive(message)]
    if not directives:
        findings.problems.extend(whole)
        return
    parted = _read(messages, parting=True, **request)
    if not any(problem.level == "error" for problem in parted):
        whole = [evolve(problem, level="warning") for problem in whole]
    known = set(whole)
    findings.problems.extend(whole)
    findings.problems.extend(evolve(each, level="warning", remedy=_ELSEWHERE) for each in parted if each not in known)
    if takes_system_messages(request["model"]) is False:
        for number in directives:
            findings.add("system-model", message_path(number), f"{request['model']} takes no system messages")


_ELSEWHERE = "Move the system message that only sets `output_config` to where it parts nothing."


def _read(messages: list[Any], *, parting: bool, model: Any, tools: Any, thinking: Any) -> list[Problem]:
    findings = Findings()
    runs = runs_of(messages, parting=parting)
    check_pairing(after_compaction(runs), findings)
    check_turns(messages, runs, findings, model=model, tools=tools, thinking=thinking)
    check_open_calls(after_compaction(runs), findings, tools=tools)
    return findings.problems
