"""Asking the policies, in one order for both drivers.

A generator yields each question as a callable with its arguments and is sent the answer, so that the sync driver can
call and the async one can await, and neither decides anything.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from math import inf
from typing import Any

from toolloop.core import events as ev
from toolloop.core.effects import Judge
from toolloop.core.errors import IllegalCommand
from toolloop.core.jsontext import decode, well_formed
from toolloop.core.policy import LATEST
from toolloop.core.states import Judging
from toolloop.core.texts import say
from toolloop.core.values import (
    Answer,
    Approve,
    Ask,
    Call,
    Deny,
    Grant,
    Outcome,
    Reject,
    Verdict,
    Wait,
    Why,
)
from toolloop.handle.config import LoopConfig
from toolloop.handle.decisions import to_ruling
from toolloop.handle.tooling import kinds_for
from toolloop.handle.views import ToolCall, View
from toolloop.tools import InvalidInput, Tool, ToolRegistry

Question = tuple[Callable[..., Any], tuple[Any, ...]]
Answers = Generator[Question, Any, Any]


class Judges:
    """Who is asked about a call: the configuration's policy, then the tool's own."""

    def __init__(self, tools: ToolRegistry, config: LoopConfig) -> None:
        """Keep whom to ask."""
        self._tools = tools
        self._config = config

    def judge(
        self, state: Judging, effect: Judge, external: frozenset[str], now: float
    ) -> Generator[Question, Any, ev.Judged]:
        """Ask `stop_when`, then the policies about each call in the model's order."""
        if effect.stop_when and self._config.stop_when is not None:
            said = yield self._config.stop_when, (View(state),)
            if inspect.isawaitable(said):
                discard(said)
                raise TypeError("stop_when is async; use AsyncToolLoopHandle, or an ordinary function")
            if said:
                return ev.Judged(at=now, stop=True, reason=said if isinstance(said, str) else None)
        verdicts: list[tuple[str, Verdict]] = []
        calls = {call.id: call for call in state.round.calls}
        for call_id in effect.calls:
            verdict = yield from self._verdict(state, calls[call_id], external, now)
            if verdict is not None:
                verdicts.append((call_id, verdict))
        return ev.Judged(at=now, verdicts=tuple(verdicts))

    def _verdict(  # noqa: PLR0911 - one return for each fate of a call
        self, state: Judging, call: Call, external: frozenset[str], now: float
    ) -> Generator[Question, Any, Verdict | None]:
        texts = state.ledger.setup.texts
        tool = self._tools.get(call.name)
        if tool is None and call.name in state.ledger.setup.gone and call.name not in external:
            return Reject(Outcome.UNKNOWN_TOOL, say(texts, "tool_gone", name=call.name))
        if tool is None and call.name not in external:
            known = ", ".join(sorted({*self._tools.names, *external})) or "none"
            return Reject(Outcome.UNKNOWN_TOOL, say(texts, "unknown_tool", name=call.name, known=known))
        if tool is not None and (problem := misfit(tool, decode(call.effective_input))):
            text = say(texts, "invalid_input", name=call.name, problems=problem)
            return Reject(Outcome.INVALID_INPUT, text)
        # Quickly where nobody is to be asked, for that is so of most calls.
        opinion = (yield from self._opinion(state, call, tool)) if self._is_asked(tool) else None
        match opinion:
            case Approve() if tool is None:
                return Wait(Why.EXTERNAL)
            case Approve(remember=Grant()):
                return Wait(Why.APPROVAL, "of the policy: only a person gives a grant", fresh=True)
            case Approve(input=edited) if edited is not None and tool is not None and misfit(tool, edited):
                return Wait(Why.APPROVAL, "the policy approved with an input that does not fit the schema", fresh=True)
            case Approve() | Deny() | Answer():
                try:
                    names = {*self._tools.names, *external}
                    return to_ruling(opinion, call_id=call.id, now=now, kinds=kinds_for(call), known_tools=names)
                except IllegalCommand as error:
                    return Wait(
                        Why.APPROVAL if tool is not None else Why.EXTERNAL, f"of the policy: {error}", fresh=True
                    )
            case Ask():
                reason = None if opinion.reason is None else well_formed(str(opinion.reason))
                why = Why.APPROVAL if tool is not None else Why.EXTERNAL
                return Wait(why, reason, fresh=bool(opinion.fresh), expires_in=_seconds(opinion.expires_in))
        return None if tool is not None else Wait(Why.EXTERNAL)

    def _is_asked(self, tool: Tool[..., Any] | None) -> bool:
        return self._config.on_tool_call is not None or (tool is not None and tool.needs_approval is not False)

    def _opinion(self, state: Judging, call: Call, tool: Tool[..., Any] | None) -> Answers:
        """What the policies say: a decision, an `Ask`, or None to let it run. Whatever goes wrong asks the caller."""
        shown = ToolCall(call, state.ledger.setup, state.round.iteration)
        if self._config.on_tool_call is not None:
            opinion = yield from _safely(self._config.on_tool_call, (shown, View(state)))
            if isinstance(opinion, Approve | Deny | Answer | Ask):
                bound = getattr(opinion, "digest", None) or shown.digest
                return opinion if bound == shown.digest else Ask("the policy decided about another call", fresh=True)
            if opinion is not None:
                return Ask(f"the policy returned {type(opinion).__name__}, which is no decision", fresh=True)
        if tool is None or tool.needs_approval is False:
            return None
        if tool.needs_approval is True:
            return Ask()
        needed = yield from _safely(tool.needs_approval, (shown,))
        try:
            return needed if isinstance(needed, Ask) else Ask() if needed else None
        except Exception as error:  # noqa: BLE001 - an answer that is neither true nor false asks, like any failure
            return Ask(f"needs_approval gave an answer that raised {type(error).__name__}", fresh=True)


def _safely(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Answers:
    try:
        answer = yield function, arguments
    except Exception as error:  # noqa: BLE001 - whatever a policy raises, the caller is asked: it fails closed
        return Ask(f"the policy raised {type(error).__name__}", fresh=True)
    if inspect.isawaitable(answer):
        discard(answer)
        return Ask("the policy is async, and this handle is not", fresh=True)
    return answer


def _seconds(expires_in: Any) -> float | None:
    """For how long a policy lets a call wait. What makes no sense is over at once: a policy fails closed."""
    if expires_in is None:
        return None
    sensible = isinstance(expires_in, int | float) and not isinstance(expires_in, bool) and 0 <= expires_in < inf
    return float(min(expires_in, LATEST)) if sensible else 0.0


def discard(answer: Any) -> None:
    """Close what an async function gave where nobody awaits it."""
    if inspect.iscoroutine(answer):
        answer.close()


def misfit(tool: Tool[..., Any], given: Any) -> str | None:
    """What of an input does not fit a tool's schema, in one text; None if it fits."""
    try:
        tool.prepare(given)
    except InvalidInput as error:
        return " ".join(error.problems)
    return None


def ask_each(questions: Generator[Any, Any, Any]) -> Any:
    """Answer each question of a generator by calling it."""
    answer: Any = None
    error: Exception | None = None
    while True:
        try:
            function, arguments = questions.send(answer) if error is None else questions.throw(error)
        except StopIteration as done:
            return done.value
        except RuntimeError as wrapped:
            if error is not None and wrapped.__cause__ is error:
                raise error from None  # Python wraps a StopIteration that passes through a generator
            raise
        answer, error = None, None
        try:
            answer = function(*arguments)
        except Exception as raised:  # noqa: BLE001 - the generator knows what a failing policy means
            error = raised
