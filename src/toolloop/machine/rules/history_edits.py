"""Replace a history: by an edit, by a compaction, by the server, or by the caller of a runner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import evolve

from toolloop.machine.record.journal_events import HistoryEdited
from toolloop.machine.record.loop import Judging, Loop, Ready, Round, Waiting
from toolloop.machine.record.replies import ends_in_reply, list_calls
from toolloop.machine.record.round_calls import RoundCalls
from toolloop.machine.rules.approving import drop_approvals, is_open
from toolloop.machine.rules.calls import find_deadline
from toolloop.machine.rules.joining import join_rest
from toolloop.machine.rules.thinking import mark_stale
from toolloop.machine.rules.turns import spend
from toolloop.machine.values.calls import Call, DecisionRecord, Status, Why, is_same_json, text_of_content
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.jsontext import JSON, decode, encode
from toolloop.machine.values.long_results import name_result
from toolloop.machine.values.setup import Setup
from toolloop.machine.values.splicing import Splice, apply_splices
from toolloop.machine.values.stop_reasons import PAUSE


def edit_history(loop: Loop, event: HistoryEdited) -> Loop:
    """Replace the closed history, for the caller or by a compaction."""
    if event.strategy is None:
        loop = join_rest(loop)._replace(compacted=())
        return rewrite(forget_changed_results(loop, event.splices), event.splices)
    if event.spent is not None:
        loop = spend(loop, (event.spent,))
    if not isinstance(loop.phase, Ready):  # the loop was stopped while the summary was written
        return loop
    noted = dict(loop.compacted) | {event.strategy: event.after}
    loop = loop._replace(compacted=tuple((name, min(tokens, event.after)) for name, tokens in noted.items()))
    return rewrite(keep_masked_results(loop, event.splices), event.splices) if event.splices else loop


def rewrite(loop: Loop, splices: Sequence[Splice]) -> Loop:
    """Return the loop with another closed history. After a limit it resumes from this history, without a round."""
    loop = join_rest(loop)
    messages = Chain(apply_splices(loop.messages, splices))
    loop = loop._replace(messages=messages, edited_at=loop.iterations)
    return mark_stale(loop, splices[0].start if splices else len(messages))


def keep_masked_results(loop: Loop, splices: Sequence[Splice]) -> Loop:
    """Return the loop with the texts of the results that a compaction replaces with a note for `read_result`."""
    known = {name for name, _ in loop.results}
    whole = []
    for splice in () if loop.setup.keep_results is None else splices:
        old = dict(_list_results(loop.messages[splice.start : splice.stop]))
        for name, content in _list_results(splice.messages):
            is_note = isinstance(content, str) and name_result(name) in content
            if is_note and name not in known and name in old and old[name] != content:
                whole.append((name, text_of_content(old[name])))
    return loop._replace(results=loop.results.extend(whole)) if whole else loop


def forget_changed_results(loop: Loop, splices: Sequence[Splice]) -> Loop:
    """Return the loop without the texts of the results that a person changes or removes: they may be secret."""
    if not loop.results:
        return loop
    new = [each for splice in splices for each in _list_results(splice.messages)]
    old = [each for splice in splices for each in _list_results(loop.messages[splice.start : splice.stop])]
    changed = {each[0] for each in old if each not in new}
    return loop._replace(results=Chain([each for each in loop.results if each[0] not in changed]))


def _list_results(messages: Iterable[str]) -> Iterator[tuple[str, JSON]]:
    for text in messages:
        content = decode(text)["content"] if '"tool_result"' in text else ()
        for block in () if isinstance(content, str) else content:
            if block["type"] == "tool_result":
                yield block["tool_use_id"], block.get("content", "")


# --- the server's compaction -----------------------------------------------------------------------------------------


def is_compaction(loop: Loop) -> bool:
    """Return whether the reply is a compaction, asked for by the parameter `compaction`, instead of an answer."""
    if not isinstance(loop.phase, Judging) or loop.phase.action is not PAUSE or loop.unjoined:
        return False
    if '"compaction"' not in loop.setup.params or decode(loop.setup.params).get("compaction") is None:
        return False
    return bool(decode(loop.response or "{}").get("stop_reason") == "compaction")


def take_server_compaction(loop: Loop) -> Loop:
    """Replace the whole history with the server's block, and remove the parameter that asked for it.

    A block without content means that the compaction failed; the history is then unchanged (source:
    `BetaCompactionBlockParam` of anthropic 2.12). The caller asked for the compaction, so it does not count as a pause.
    """
    params, replies = decode(loop.setup.params), loop.open_messages
    del params["compaction"]
    setup = evolve(loop.setup, params=encode(params))
    loop = loop._replace(setup=setup, phase=Waiting("paused"), container=None, compacted=(), pauses=loop.pauses - 1)
    blocks = [block for text in replies for block in decode(text)["content"]]
    if any(block["type"] == "compaction" and block.get("content") for block in blocks):
        loop = rewrite(loop, (Splice(0, len(loop.messages), replies),))
    return loop


# --- the history of a runner's caller --------------------------------------------------------------------------------


def match_calls(old: RoundCalls, reply: str, *, members: bool) -> list[Call]:
    """Return the calls of a reply; one that is also among the old calls keeps its state. Empty if there are none.

    `members`: see `Setup`.
    """
    blocks = decode(reply)["content"] if ends_in_reply((reply,)) else ()
    return [_match_call(old, call) for call in (() if isinstance(blocks, str) else list_calls(blocks, members=members))]


def _match_call(old: RoundCalls, call: Call) -> Call:
    known = old.find(call.id)
    return known if known and known.name == call.name and is_same_json(known.input, call.input) else call


def run_again(calls: Iterable[Call], names: Sequence[str], rerun: DecisionRecord, setup: Setup) -> list[Call]:
    """Return the calls; those named run again, without their results. Late ends of earlier runs do not count.

    The order to run again is one nameless approval. If the call demands more, it waits for that.
    """
    return [_renew_call(call, rerun, setup) if call.id in names else call for call in calls]


def _renew_call(call: Call, rerun: DecisionRecord, setup: Setup) -> Call:
    call = drop_approvals(call)._replace(why=None, reason=None, result=None, has_loop=False)
    call = call._replace(judged=rerun.via is None)  # those of old journals were not judged again
    call = call._replace(status=Status.CLEARED, run=call.run + 1, decision=rerun)
    if not is_open(call):
        return call
    call = call._replace(status=Status.WAITING, why=Why.APPROVAL, decision=None)
    return call._replace(expires_at=find_deadline(setup, rerun.at))


def explain_no_rerun(call_id: str, calls: Iterable[Call]) -> str | None:
    """Return why a call cannot run again; None if it can."""
    call = next((call for call in calls if call.id == call_id), None)
    if call is None:
        return f"{call_id!r} is not a call of the open round"
    if call.result is None:
        return f"the call {call_id!r} has no result yet (it is {call.status}), so it cannot run again"
    return None if call.started else f"the call {call_id!r} never ran: its result is {call.result.outcome}"


def has_joined(round_: Round | None, before: Sequence[str], after: Sequence[str]) -> bool:
    """Return whether an edit added this settled round to the history, which may already contain an equal one."""
    if round_ is None or not round_.is_settled():
        return False
    last = next((text for text in reversed(after) if ends_in_reply((text,))), None)
    return last is not None and last == round_.reply and list(after).count(last) > list(before).count(last)


def list_unjoined_before_reply(loop: Loop) -> tuple[str, ...]:
    """Return the unjoined messages before the open reply. A paused reply is itself the last of them."""
    is_paused = isinstance(loop.phase, Waiting) and loop.round is None and ends_in_reply(loop.unjoined)
    return loop.unjoined[:-1] if is_paused else loop.unjoined
