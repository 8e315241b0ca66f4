"""Call the caller's functions for a call: `stop_when` and the policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from math import inf
from typing import Any

from attrs import evolve, frozen

from toolloop._engine.questions import Questions
from toolloop._interface.calls import PolicyView
from toolloop._interface.config import LoopConfig, Opinion, Policy
from toolloop._interface.decisions import to_record
from toolloop._requests.output import MisfitError, find_answer_text, read_json
from toolloop.errors import IllegalCommand
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import Judge
from toolloop.machine.record.loop import Loop
from toolloop.machine.rules.calls import LATEST
from toolloop.machine.values.calls import (
    Answer,
    Approve,
    Call,
    DecisionRecord,
    Deny,
    Grant,
    Outcome,
    PolicyResult,
    Reject,
    Status,
    Wait,
    Why,
)
from toolloop.machine.values.demands import Ask, Demand
from toolloop.machine.values.jsontext import decode, describe_type, make_well_formed
from toolloop.machine.values.texts import fill_text
from toolloop.tools import InvalidInput, Tool, ToolRegistry, describe_failure
from toolloop.tools.calls import Preview, ToolCall
from toolloop.tools.responses.results import find_kinds_for
from toolloop.tools.tool_errors import shorten

_MOST_NAMES = 10

AnyTool = Tool[..., Any]


@frozen
class _FailedAsk(Ask):
    """The `Ask` that stands for a policy that raised. These are one demand, whatever their reasons."""


@frozen
class Around:
    """What is around a loop inside a call.

    Attributes:
        policies: those of the loops around it, outermost first.
        view: that of the loop whose call it is in; None for the outermost loop.
        metadata: reads the metadata of the outermost loop.

    """

    policies: tuple[Policy, ...] = ()
    view: PolicyView | None = None
    metadata: Callable[[], Mapping[str, str]] = dict


_NOTHING = Around()


@frozen
class Policies:
    """Asks the policies about calls: those of the loops around, that of the configuration, then `needs_approval`."""

    tools: ToolRegistry
    config: LoopConfig

    def judge(
        self, loop: Loop, effect: Judge, external: frozenset[str], now: float, around: Around = _NOTHING
    ) -> Questions[ev.Judged]:
        """Ask `stop_when`, then the policies about each call in the model's order.

        Args:
            loop: the loop, which is judging its last reply.
            effect: the calls to judge, and whether to ask `stop_when`.
            external: the names of the tools whose results come from the caller.
            now: the time, in seconds since the epoch.
            around: the policies of the loops around this one, which forbid and ask in the whole tree.

        Raises:
            Exception: `stop_when` raised it.

        """
        view = PolicyView(loop, around.view, around.metadata)
        if effect.stop_when and self.config.stop_when is not None:
            stop = yield self.config.stop_when, (view,)
            if stop:
                return ev.Judged(path=effect.path, stop=True, reason=stop if isinstance(stop, str) else None)
        if effect.output:
            return ev.Judged(path=effect.path, problems=self._find_problems(loop))
        results: list[tuple[str, PolicyResult]] = []
        for call in [each for each in loop.calls if each.id in effect.calls]:
            tool = None if "." in call.name and not call.is_member else self.tools.get(call.name)
            result: PolicyResult | None = self._reject(loop, call, tool, external)
            if result is None:
                judged = partial(self._make_result, call=call, tool=tool, external=external, now=now)
                result = yield from self._judge_call(loop, call, view, around, judged)
            if isinstance(result, Wait) and tool is not None and tool.preview is not None:
                result = evolve(result, preview=(yield from _make_preview(tool.preview, call)))
            if result is not None:
                results.append((call.id, result))
        only = effect.calls if loop.calls.members else ()
        return ev.Judged(path=effect.path, results=tuple(results), only=only)

    def _find_problems(self, loop: Loop) -> tuple[str, ...]:
        """Return why the answer is not one of the class of the result. Without the class, it must be JSON."""
        text, output = find_answer_text(decode(loop.response or '{"content":[]}')), self.config.typed()
        try:
            read_json(text) if output is None else output.read(text)
        except MisfitError as error:
            return error.problems
        return ()

    def make_previews(self, loop: Loop) -> Questions[tuple[tuple[str, str], ...]]:
        """Return the previews of the uncertain calls that have none: they never waited, or were edited since."""
        made = []
        for call in loop.calls.having(Status.WAITING):
            tool = self.tools.get(call.name)
            if call.why is Why.UNCERTAIN and call.preview is None and tool is not None and tool.preview is not None:
                made.append((call.id, (yield from _make_preview(tool.preview, call))))
        return tuple(made)

    def _judge_call(
        self,
        loop: Loop,
        call: Call,
        view: PolicyView,
        around: Around,
        result_of: Callable[[Opinion], PolicyResult | None],
    ) -> Questions[PolicyResult | None]:
        """Return the result for a call: what the policies around say of it, then those of its own loop."""
        shown = ToolCall(call, loop.setup, loop.iterations)
        outer = (yield from _ask_outer(around.policies, shown, view)) if around.policies else []
        if isinstance(outer, Deny):
            denied = result_of(outer)
            if not isinstance(denied, Wait):
                return denied
            outer = [Ask(denied.reason, fresh=True)]  # it has no reason to tell the model; the inner policy may deny
        opinion = yield from self._ask_own(self.tools.get(call.name), shown, view)
        result = result_of(opinion)
        if isinstance(result, DecisionRecord) and result.kind != "approve":
            return result
        if not outer and isinstance(result, DecisionRecord) and result.content is not None:
            edited = ToolCall(call._replace(edited=result.content), loop.setup, loop.iterations)
            about = yield from _ask_outer(around.policies, edited, view)
            outer = [Ask("a policy around forbids the edited input", fresh=True)] if isinstance(about, Deny) else about
        if not outer:
            return result
        inner = [opinion] if isinstance(opinion, Ask) else opinion if isinstance(opinion, Sequence) else []
        return result_of([*outer, *inner])

    def _make_result(  # noqa: PLR0911 - one return for each opinion
        self, opinion: Opinion, call: Call, tool: AnyTool | None, external: frozenset[str], now: float
    ) -> PolicyResult | None:
        """Return the policy result for an opinion; None lets the call run. An invalid opinion asks the caller."""
        why = Why.EXTERNAL if tool is None else Why.APPROVAL
        match opinion:
            case None | Approve() if tool is None:
                return Wait(why)
            case None:
                return None
            case Ask():
                return _make_wait(why, [opinion])
            case Sequence():
                return _make_wait(why, opinion)
            case Approve(remember=Grant()):
                return _make_wait(why, [Ask("of the policy: only a person can give a grant", fresh=True)])
            case Approve(input=edited) if edited is not None and tool is not None and find_misfit(tool, edited):
                return _make_wait(
                    why, [Ask("the policy approved with an input that does not fit the schema", fresh=True)]
                )
        known = {*self.tools.names, *external}
        try:
            return to_record(opinion, call_id=call.id, now=now, kinds=find_kinds_for(call), known_tools=known)
        except IllegalCommand as error:
            return _make_wait(why, [Ask(f"of the policy: {error}", fresh=True)])

    def _reject(self, loop: Loop, call: Call, tool: AnyTool | None, external: frozenset[str]) -> Reject | None:
        """Reject a call of an unknown tool, or with an input that does not fit. The policies never see it."""
        texts = loop.setup.texts
        if tool is not None:
            problems = find_misfit(tool, decode(call.effective_input))
            if problems is None:
                return None
            text = fill_text(texts, "invalid_input", name=call.name, problems=problems)
            return Reject(Outcome.INVALID_INPUT, text)
        if call.name in external or (call.is_member and f"{call.toolset}.*" in external):
            return None
        if call.name in loop.setup.gone:
            return Reject(Outcome.UNKNOWN_TOOL, fill_text(texts, "tool_gone", name=call.name))
        known = _name_nearest(call.name, loop, self.tools)
        return Reject(Outcome.UNKNOWN_TOOL, fill_text(texts, "unknown_tool", name=call.name, known=known))

    def _ask_own(self, tool: AnyTool | None, shown: ToolCall, view: PolicyView) -> Questions[Opinion]:
        """Return a decision, an `Ask` or several, or None to let the call run. A policy that fails asks the caller.

        An `Ask` of the policy adds to what the tool itself demands: so that a further rule never lets more run.
        """
        policy = self.config.on_tool_call
        opinion = None if policy is None else (yield from _ask_policy(policy, shown, view))
        if opinion == []:
            return None
        if isinstance(opinion, (Approve, Deny, Answer)):
            return opinion
        own = None if tool is None else (yield from _ask_tool(tool, shown))
        if opinion is None:
            return own
        demanded = [each for each in _list_asks(own) if not _is_plain(each)]
        return [*_list_asks(opinion), *demanded] if demanded else opinion


def _ask_policy(policy: Policy, shown: ToolCall, view: PolicyView) -> Questions[Opinion]:
    """Return what the policy of the configuration says of a call; any other value than an opinion asks the caller."""
    opinion = yield from _ask_safely(policy, (shown, view))
    if isinstance(opinion, (Approve, Deny, Answer, Ask)):
        digest = getattr(opinion, "digest", None)
        is_bound = digest is None or digest == shown.digest
        return opinion if is_bound else Ask("the policy decided another call", fresh=True)
    if opinion is None or _are_asks(opinion):
        return None if opinion is None else [*opinion]
    return Ask(f"the policy returned {type(opinion).__name__}, which is not a decision", fresh=True)


def _ask_tool(tool: AnyTool, shown: ToolCall) -> Questions[Ask | Sequence[Ask] | None]:
    """Return what a tool says of a call of its own: an `Ask` or several, or None to let the call run."""
    if isinstance(tool.needs_approval, bool):
        return Ask() if tool.needs_approval else None
    needed = yield from _ask_safely(tool.needs_approval, (shown,))
    try:
        return needed or None if isinstance(needed, Ask) or _are_asks(needed) else Ask() if needed else None
    except Exception as error:  # noqa: BLE001 - the answer is neither true nor false
        return _FailedAsk(f"the value of needs_approval raised {type(error).__name__}", fresh=True)


def _list_asks(asks: Ask | Sequence[Ask] | None) -> Sequence[Ask]:
    return [asks] if isinstance(asks, Ask) else asks or ()


def _ask_safely(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Questions[Any]:
    try:
        return (yield function, arguments)
    except Exception as error:  # noqa: BLE001 - whatever a policy raises, the caller decides
        return _FailedAsk(f"the policy raised {type(error).__name__}", fresh=True)


def _ask_outer(policies: Sequence[Policy], shown: ToolCall, view: PolicyView) -> Questions[Deny | list[Ask]]:
    """Return the first denial of the policies around a loop, or all that they ask.

    They leave the verdict to the inner policies, so an answer or an edit of theirs counts as an `Ask`.
    """
    asks: list[Ask] = []
    for policy in policies:
        opinion = yield from _ask_safely(policy, (shown, view))
        match opinion:
            case Deny():
                return opinion
            case None | Approve(input=None, remember=None):
                continue
            case Ask():
                asks.append(opinion)
            case Approve() | Answer():
                asks.append(Ask("a policy around wants another input or result"))
            case _ if _are_asks(opinion):
                asks.extend(opinion)
            case _:
                name = type(opinion).__name__
                asks.append(Ask(f"a policy around returned {name}, which is not a decision", fresh=True))
    return asks


def _are_asks(opinion: Any) -> bool:
    return isinstance(opinion, (list, tuple)) and all(isinstance(each, Ask) for each in opinion)


def _make_wait(why: Why, asks: Sequence[Ask]) -> Wait:
    """Return the policy result for one or more `Ask`s, each a demand. A plain one needs none of its own."""
    reasons = dict.fromkeys(text for each in asks if (text := _read_text(each.reason)) is not None)
    times = [seconds for each in asks if (seconds := _read_seconds(each.expires_in)) is not None]
    is_counted = why is Why.APPROVAL and not (len(asks) == 1 and _is_plain(asks[0]))
    demands = tuple(map(_make_demand, asks)) if is_counted else ()
    return Wait(why, "; ".join(reasons) if reasons else None, expires_in=min(times, default=None), demands=demands)


def _is_plain(ask: Ask) -> bool:
    """Return whether one approval by any person is enough, also by a grant."""
    return evolve(ask, reason=None, expires_in=None, fresh=bool(ask.fresh)) == Ask()


def _make_demand(ask: Ask) -> Demand:
    return Demand(
        ask.need,
        tuple(map(make_well_formed, ask.of)),
        tuple(map(make_well_formed, ask.not_by)),
        fresh=bool(ask.fresh),
        reason=_read_text(ask.reason),
        rule=_read_text(ask.rule),
        rule_digest=_read_text(ask.rule_digest),
        expires_in=_read_seconds(ask.expires_in),
        remind_after=tuple(map(float, ask.remind_after)),
        failed=isinstance(ask, _FailedAsk),
    )


def _read_text(text: object) -> str | None:
    try:
        return None if text is None else make_well_formed(str(text))
    except Exception:  # noqa: BLE001 - of an object of the policy
        return f"{describe_type(text)} that cannot be shown"


def _make_preview(preview: Preview, call: Call) -> Questions[str]:
    """Return the preview of a call. An error becomes the text, because a person still decides the call."""
    try:
        text = yield preview, (decode(call.effective_input),)
        return (
            make_well_formed(text)
            if isinstance(text, str)
            else f"preview returned {describe_type(text)}, which is not a string"
        )
    except Exception as error:  # noqa: BLE001 - of the caller's function
        return f"preview failed: {describe_failure(error)}"


def _read_seconds(expires_in: Any) -> float | None:
    """Return the limit in seconds that a policy sets. With an invalid value, the call expires at once."""
    if expires_in is None:
        return None
    is_number = isinstance(expires_in, (int, float)) and not isinstance(expires_in, bool)
    return float(min(expires_in, LATEST)) if is_number and 0 <= expires_in < inf else 0.0


def find_misfit(tool: AnyTool, given: Any) -> str | None:
    """Return the problems of an input that does not fit a tool's schema, one per line; None if it fits.

    If the tool's own code raises (a validator, a default), the model also gets that as a problem.
    """
    try:
        tool.prepare(given)
    except InvalidInput as error:
        problems = error.problems
    except Exception as error:  # noqa: BLE001 - see above
        problems = (f"input: it could not be checked: {describe_failure(error)}",)
    else:
        return None
    return shorten("\n".join(f"- {problem}" for problem in problems))


def _name_nearest(name: str, loop: Loop, tools: ToolRegistry) -> str:
    """Return the names of the tools of a loop, or of those with the nearest names. The model finds deferred ones."""
    defined = [*tools.definitions(), *(decode(loop.setup.params).get("tools") or ())]
    names = sorted({each["name"] for each in defined if each.get("name") and not each.get("defer_loading")})
    names += [each for each in tools.names if "." in each]  # a toolset has one definition
    if len(names) <= _MOST_NAMES:
        return ", ".join(names) or ("none that is loaded, but others can be searched for" if defined else "none")
    nearest = sorted(get_close_matches(name, names, _MOST_NAMES, cutoff=0.0))
    return f"{', '.join(nearest)}, and {len(names) - len(nearest)} others"
