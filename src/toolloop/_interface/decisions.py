"""Validate decisions and messages of the caller, and convert them for the machine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from attrs import evolve

from toolloop._interface.people import person_of
from toolloop._messages.blocks import RESULT_KINDS
from toolloop._messages.check import check
from toolloop._messages.rules import Problem
from toolloop.errors import AlreadyDecided, IllegalCommand, InvalidHistory, UnknownCall
from toolloop.machine.record.loop import Loop, Waiting
from toolloop.machine.rules.calls import LATEST
from toolloop.machine.rules.deciding import make_settled_error
from toolloop.machine.rules.joining import join_rest
from toolloop.machine.values.calls import Answer, Approve, Decision, DecisionRecord, Deny, Grant, GrantSpec, Rerun
from toolloop.machine.values.jsontext import JSON, decode, describe_type, encode, make_well_formed, to_plain
from toolloop.machine.values.names import is_of_a_rule
from toolloop.tools import content_of


def to_record(  # noqa: PLR0913 - what is checked, and what is recorded with it
    decision: Decision,
    *,
    call_id: str,
    now: float,
    kinds: Collection[str] = RESULT_KINDS,
    known_tools: Collection[str] | None = None,
    via: str | None = None,
) -> DecisionRecord:
    """Return a decision as a machine record.

    Args:
        decision: the decision.
        call_id: the id of the call, for errors.
        now: the time for the record.
        kinds: the types of blocks that the result of this call may hold.
        known_tools: the names of the tools that a result may refer to; None accepts any name.
        via: where a person decided; None if a policy did.

    Raises:
        IllegalCommand: the value is not a decision, its name is refused, or the API does not accept its content.

    """
    for name in ("reason", "digest", "rule", "rule_digest"):
        if not isinstance(value := getattr(decision, name, None), str | None):
            raise _reject(f"call {call_id!r}: {name} of the decision: expected a str, got {describe_type(value)}", name)
    who = _name_policy(decision, call_id) if via is None else _name_person(decision, call_id)
    record = _record(decision, call_id, kinds, known_tools)
    return evolve(record, at=now, via=via, digest=getattr(decision, "digest", None), **who)


def _name_policy(decision: Decision, call_id: str) -> dict[str, Any]:
    """Return the fields that name a policy: its rule, or whatever name it gives."""
    by, rule = getattr(decision, "by", None), getattr(decision, "rule", None)
    if not isinstance(by, str | None):
        raise _reject(f"call {call_id!r}: by of the decision: expected a str, got {describe_type(by)}", "by")
    if by is not None and is_of_a_rule(by):
        raise _reject(f"call {call_id!r}: by of the decision: give rule= for the name of a rule, not {by!r}", "by")
    name = by if rule is None else f"rule: {rule}"
    parts = {"by": name, "rule": rule, "rule_digest": getattr(decision, "rule_digest", None)}
    return {part: None if text is None else make_well_formed(text) for part, text in parts.items()}


def _name_person(decision: Decision, call_id: str) -> dict[str, Any]:
    """Return the fields that name a person."""
    if getattr(decision, "rule", None) is not None or getattr(decision, "rule_digest", None) is not None:
        raise _reject(f"call {call_id!r}: rule of the decision: only a policy names its rule", "rule")
    try:
        name, groups = person_of(getattr(decision, "by", None))
    except (TypeError, ValueError) as error:
        raise _reject(f"call {call_id!r}: {error}", "by") from error
    return {"by": name, "groups": groups}


def _record(
    decision: Decision, call_id: str, kinds: Collection[str], known_tools: Collection[str] | None
) -> DecisionRecord:
    """Return a decision as a machine record, without who decided, and when."""
    match decision:
        case Approve(input=None | Mapping(), remember=None | Grant()):
            content = None if decision.input is None else _encode_input(decision.input, "approve", call_id)
            return DecisionRecord(
                "approve",
                content,
                reason=None if decision.reason is None else make_well_formed(decision.reason),
                remember=None if decision.remember is None else to_grant_spec(decision.remember),
            )
        case Deny(reason=str()):
            reason = str(content_of(decision.reason))  # also replaces lone surrogates, which could not be stored
            return DecisionRecord("deny", reason=reason)
        case Answer(is_error=bool()):
            content = _answer(decision, call_id, kinds, known_tools)
            return DecisionRecord("answer", content, decision.is_error)
        case Rerun():
            return DecisionRecord("rerun")
    raise _reject(
        f"call {call_id!r}: expected Approve (input: a mapping or None, remember: a Grant or None), Deny (reason: a "
        f"str), Answer (is_error: a bool) or Rerun, got {decision!r}",
        type(decision).__name__,
    )


def make_nothing_waits_error(call_id: str, loop: Loop) -> UnknownCall:
    """Return the error for a decision when no round is open."""
    return UnknownCall(
        f"cannot decide call {call_id!r}: no call is waiting, because the loop is {type(loop.phase).__name__}",
        call=call_id,
        known=(),
    )


def make_closed_error(loop: Loop, name: str, call_id: str) -> AlreadyDecided | None:
    """Return the error for a decision about a call whose round is closed; None if the loop never had the call.

    Args:
        loop: the loop of the call.
        name: the name of the call, for the error.
        call_id: the id of the call.

    """
    closed = loop.phase.closed if isinstance(loop.phase, Waiting) else None
    if closed is not None and (call := closed.calls.find(call_id)) is not None:
        return make_settled_error(name, call)
    texts = (text for text in reversed(join_rest(loop).messages) if encode(call_id) in text)
    contents = (message["content"] for message in map(decode, texts) if message["role"] == "assistant")
    if any(block.get("id") == call_id for content in contents if isinstance(content, list) for block in content):
        text = f"call {name!r} already has a result, and its round is closed"
        return AlreadyDecided(text, call=name, decision=None, by=None, at=None)
    return None


def to_grant_spec(grant: Grant) -> GrantSpec:
    """Return a grant as a machine record.

    Raises:
        IllegalCommand: the grant is invalid; the message names the field.

    """
    if not isinstance(grant.tool, str | None):
        raise _reject(
            f"Grant.tool: expected a tool name, or None for the tool of the call, got {grant.tool!r}", "Grant"
        )
    if grant.match is not None and not isinstance(grant.match, Mapping):
        raise _reject(f"Grant.match: expected a mapping of input fields to patterns, got {grant.match!r}", "Grant")
    if grant.uses is not None and (type(grant.uses) is not int or grant.uses < 1):
        raise _reject(f"Grant.uses: expected an int of at least 1, or None for no limit, got {grant.uses!r}", "Grant")
    match = None if grant.match is None else _encode_input(grant.match, "Grant.match", "")
    try:
        expires_at = None if grant.expires_at is None else to_seconds(grant.expires_at, "Grant.expires_at")
    except (TypeError, ValueError) as error:
        raise _reject(str(error), "Grant") from error
    return GrantSpec(grant.tool, match, grant.uses, expires_at)


def to_seconds(moment: Any, asked: str) -> float:
    """Return a time as seconds since the epoch.

    Raises:
        TypeError: the value is neither a datetime nor a number.
        ValueError: the datetime has no time zone, or the number is out of range.

    """
    if isinstance(moment, datetime):
        if moment.utcoffset() is None:
            raise ValueError(f"{asked}: expected an aware datetime, such as datetime.now(UTC), got {moment!r}")
        return moment.timestamp()
    if isinstance(moment, (int, float)) and not isinstance(moment, bool):
        if not 0 <= moment <= LATEST:
            raise ValueError(f"{asked}: expected seconds (not milliseconds) since the epoch, got {moment!r}")
        return float(moment)
    raise TypeError(f"{asked}: expected an aware datetime, or seconds since the epoch, got {describe_type(moment)}")


def _answer(decision: Answer, call_id: str, kinds: Collection[str], known_tools: Collection[str] | None) -> str:
    try:
        return encode(content_of(decision.content, kinds=kinds, is_error=decision.is_error, known_tools=known_tools))
    except (TypeError, ValueError) as error:
        raise _reject(f"call {call_id!r}: cannot send the answer: {error}", "answer") from error


def _encode_input(value: Any, asked: str, call_id: str) -> str:
    try:
        return encode(to_plain(value, "input"))
    except (TypeError, ValueError) as error:
        raise _reject(f"call {call_id!r}: {asked}: {error}", asked) from error


def _reject(text: str, asked: str) -> IllegalCommand:
    return IllegalCommand(text, state="Waiting", asked=asked, allowed=("approve", "deny", "answer", "rerun"))


def name_of(by: object) -> str | None:
    """Return the name of a person, for the record.

    Raises:
        TypeError: the value is not a name, a `Person` or None.
        ValueError: the name is refused; see `person_of`.

    """
    return person_of(by)[0]


def to_user_texts(messages: Any, where: str) -> tuple[str, ...]:
    """Return messages of a user as JSON texts. A string is one user message. See `to_texts`."""
    said = [messages] if isinstance(messages, str) else messages
    if isinstance(said, Sequence):
        said = [{"role": "user", "content": each} if isinstance(each, str) else each for each in said]
    return to_texts(said, where=where)


def to_user_turn(messages: Any, asked: str) -> tuple[str, ...]:
    """Return the messages of a person as JSON texts: at least one. `asked`: the method, for errors."""
    texts = to_user_texts(messages, f"the messages of {asked}")
    if not texts:
        raise ValueError(f"{asked} got no messages. Give at least one")
    return texts


def to_texts(
    messages: Iterable[Any], *, where: str = "messages", known: Collection[str] = frozenset()
) -> tuple[str, ...]:
    """Return messages as JSON texts. SDK objects become the JSON that the SDK would send.

    Args:
        messages: the caller's messages.
        where: the name of the argument, for errors.
        known: texts that are accepted unchanged.

    Raises:
        TypeError: the value is not a list, or a message is not JSON; the error has its path.

    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise TypeError(f"{where}: expected a list of messages, got {describe_type(messages)}")
    texts = []
    for index, message in enumerate(messages):
        if known and (text := _as_it_is(message)) in known:
            texts.append(str(text))  # replies may contain content that callers may not send
            continue
        value = to_plain(message, f"{where}[{index}]")
        if isinstance(value, dict) and hasattr(message, "to_dict"):
            value = {name: value[name] for name in ("role", "content") if name in value}  # an SDK reply
        try:
            texts.append(encode(value))
        except ValueError as error:
            raise TypeError(f"{where}[{index}] is not JSON: {error}") from error
    return tuple(texts)


def _as_it_is(message: Any) -> str | None:
    try:
        return encode(message)
    except (TypeError, ValueError, RecursionError):
        return None


def refuse_invalid(texts: Iterable[str], params: Mapping[str, JSON], *, asked: str) -> None:
    """Refuse messages that the API would refuse.

    Raises:
        InvalidHistory: the message has the first problem; `problems` has all, and `messages` the messages.

    """
    messages = [decode(text) for text in texts]
    parts = {name: params.get(name) for name in ("model", "thinking", "tool_choice", "max_tokens")}
    betas = params.get("betas")
    if isinstance(betas, list) and any(str(beta).startswith("interleaved-thinking-") for beta in betas):
        parts["max_tokens"] = None  # the budget is that of all thinking in a turn, which may be more than one reply
    found = check(messages, tools=list_marked_tools(params), **parts)
    problems = tuple(problem for problem in found if problem.level == "error")
    if problems:
        raise _make_invalid_error(messages, problems, asked)


def _make_invalid_error(messages: list[JSON], problems: tuple[Problem, ...], asked: str) -> InvalidHistory:
    first = problems[0]
    more = f" ({len(problems) - 1} more in .problems)" if len(problems) > 1 else ""
    what = "messages" if first.path.startswith("messages") else "parameters"
    return InvalidHistory(
        f"{asked}: the API would refuse these {what}: {first.path}: {first.message} [{first.rule}]. "
        f"{first.remedy}{more}",
        problems=problems,
        messages=messages,
    )


# Rules that only a closing user message can break. Before it, a server call may be open.
_AT_THE_CLOSE = frozenset({"open-server-call", "code-results-only"})
_ANYBODY = {"role": "user", "content": "-"}


def refuse_last_word(texts: Sequence[str], before: Sequence[str], params: Mapping[str, JSON], *, asked: str) -> None:
    """Refuse an edit after which the request would end in an assistant message, without a paused turn to resume.

    `check` accepts such an end, because it may be a paused turn. An end that the loop began with is allowed.

    Raises:
        InvalidHistory: as for `refuse_invalid`.

    """
    last = decode(texts[-1]) if texts else None
    if texts[-1:] == before[-1:] or not isinstance(last, dict) or last.get("role") == "user":
        return
    messages = [decode(text) for text in texts]
    found = check(messages, model=params.get("model"), thinking=params.get("thinking"))
    if problems := tuple(each for each in found if each.rule == "prefill"):
        raise _make_invalid_error(messages, problems, asked)


def refuse_unclosed(texts: Iterable[str], before: Iterable[str], *, asked: str) -> None:
    """Refuse an edited history with open server calls, unless there were any before, because a loop may begin so.

    Raises:
        InvalidHistory: as for `refuse_invalid`.

    """
    messages = [decode(text) for text in texts]
    problems = _list_open(messages)
    if problems and not _list_open([decode(text) for text in before]):
        raise _make_invalid_error(messages, problems, asked)


def _list_open(messages: list[JSON]) -> tuple[Problem, ...]:
    return tuple(each for each in check([*messages, _ANYBODY]) if each.rule in _AT_THE_CLOSE)


def list_marked_tools(params: Mapping[str, JSON]) -> list[JSON] | None:
    """Return the tools and all other parameters with cache marks, because marks are counted together (rule 34).

    The top-level mark applies to the end of the request. Here it is first, with a ttl of an hour, so that only the
    number of marks is checked for it.
    """
    system = params.get("system")
    beside = [{"cache_control": {"type": "ephemeral", "ttl": "1h"}}] if params.get("cache_control") else []
    marked = [block for block in system if isinstance(block, dict)] if isinstance(system, list) else []
    tools = params.get("tools")
    return [*beside, *(tools or ()), *marked] if beside or marked or tools else tools
