"""The steps of a runner: to the next reply, and to the results of the calls that the history ends with.

A runner is a driver that stops earlier than a handle: before a reply with calls is judged, because the caller sees the
reply first, and before the round is closed, if the caller asks for the response. Between two steps the caller may
change the history (see `caller_history`), and the loop adopts it. Each step yields its actions, a drive or a question
to the caller, as functions with their arguments. So both runners share the steps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from toolloop._engine.questions import Questions
from toolloop._handles.assembly import Assembly
from toolloop._handles.handle import HandleBase
from toolloop._interface.decisions import refuse_invalid, refuse_last_word
from toolloop._interface.loop_params import begin_with, find_missing_parameter, merge_params
from toolloop._interface.message_edits import preview_request
from toolloop._interface.results import Yielded
from toolloop._journal.event_bus import LOG
from toolloop._requests.params import Secrets
from toolloop._runner.caller_history import (
    CallerHistory,
    MessageTexts,
    find_open_calls,
    list_open_at_limit,
    make_taken,
    part_at_pause,
)
from toolloop._runner.held_effects import HeldEffects
from toolloop.errors import IllegalCommand, UndecidedCalls, UnknownCall
from toolloop.machine.queries import find_open_round, outstanding
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import EndTurn, Judge, SendRequest
from toolloop.machine.record.loop import Failed, Finished, Loop, Ready, TooDeep, Waiting, list_messages
from toolloop.machine.record.replies import ends_in_server_call
from toolloop.machine.rules.history_edits import explain_no_rerun
from toolloop.machine.rules.joining import join_rest, make_answer
from toolloop.machine.tree import step
from toolloop.machine.values.calls import Continue, InjectMessages, Status
from toolloop.machine.values.jsontext import JSON, decode, describe_type, encode

_STEP = "the next step of the runner"
_RETRY = "generate_tool_response(retry=...)"
# The decisions that a waiting call accepts, by its reason to wait.
_MAY = {"external": "Answer or Deny", "uncertain": "Rerun, Answer or Deny"}
_MAY_ELSE = "Approve, Deny or Answer"


class RunnerSteps:
    """The steps that both runners share.

    Attributes:
        assembly: the parts of the loop.
        handle: for reads and commands.
        history: the history as the caller sees and changes it.

    """

    def __init__(
        self,
        assembly: Assembly[Any],
        handle: HandleBase[Any, Any],
        held: HeldEffects,
        drive: Callable[[RunnerSteps], Any],
        ask: Callable[[Any], Any] | None,
    ) -> None:
        """Start before the first request.

        Args:
            assembly: the parts of the loop.
            handle: for reads and commands.
            held: the effects that the assembled engine holds back.
            drive: drives until `rests`, sync or async.
            ask: decides waiting calls; None means that the caller decides them between two steps.

        """
        self.assembly = assembly
        self.handle = handle
        self.history: CallerHistory = CallerHistory()
        self._drive = drive
        self._ask = ask
        self._held = held
        self._busy = threading.Lock()
        self._is_over = False  # whether the end of the loop was reported

    @property
    def loop(self) -> Loop:
        """The current root loop, with its history as it is shown."""
        return join_rest(self.assembly.journal.state.root)

    @property
    def phase(self) -> str:
        """The name of its phase, for errors."""
        return type(self.loop.phase).__name__

    # --- commands ---

    def at_work(self, asked: str) -> threading.Lock:
        """Return the lock that the one active caller holds.

        `with` and the lock are implemented in C, so an interrupt cannot leave it locked.
        """
        self._refuse_at_work(asked, "Use it from one thread or task at a time")
        return self._busy

    def _refuse_at_work(
        self, asked: str, how: str = "Change the history between two steps, in the body of the for loop"
    ) -> None:
        if self._busy.locked():
            may = ("params", "pending", "decide()")
            raise runner_refusal(f"{asked}: the runner is busy. {how}", self.phase, asked, *may)

    def params(self) -> dict[str, Any]:
        """Return the parameters of requests, with the history as the caller sees it."""
        loop = self.loop
        given = self.assembly.runtimes.root.requests.restore_params(loop.setup.params)
        return {**given, "messages": [decode(text) for text in self.history.shown(loop)]}

    def append(self, messages: Sequence[Any]) -> None:
        """Append messages to the history."""
        self._refuse_at_work("append_messages()")
        texts = self.history.to_texts(messages)
        for number, text in enumerate(texts):
            if not isinstance(decode(text), dict):
                raise TypeError(f"messages[{number}] is not a message. Pass each message as a separate argument")
        if texts:
            self.history.change(self.loop, (*self.history.shown(self.loop), *texts))

    def set_params(self, params: Any) -> None:
        """Replace all parameters, and the history."""
        asked = "set_messages_params()"
        self._refuse_at_work(asked)
        given = params(self.params()) if callable(params) else params
        if not isinstance(given, Mapping):
            raise TypeError(f"{asked}: expected a mapping, or a function that returns one, got {describe_type(given)}")
        if "messages" not in given:
            raise find_missing_parameter("messages")
        texts = self.history.to_texts(given["messages"])
        rest = {name: value for name, value in given.items() if name != "messages"}
        begins = begin_with(rest, self.assembly.given.here.tools, asked=asked)
        journal, requests = self.assembly.journal, self.assembly.runtimes.root.requests
        old = _by_name(decode(self.loop.setup.params), requests.secrets)
        new = _by_name(begins.stored, begins.secrets)
        if changed := tuple(name for name in {**old, **new} if old.get(name) != new.get(name)):
            journal.record(ev.Changed(encode(begins.stored), changed, at=journal.now()))
            requests.update(begins.secrets, changed)
            self.history.is_tuned = True
        self.history.change(self.loop, texts)

    # --- the steps ---

    def advance(self, stops_before: type[Judge | SendRequest]) -> Questions[bool]:
        """Drive to the next reply, or to just before its request. Return False if the loop has ended."""
        self._take_over()
        if not (has_ended := isinstance(self.loop.phase, Finished)):
            self._retry()
        self._held.stops_before = stops_before
        while not (has_ended or self.has_reply() or (isinstance(self.loop.phase, Ready) and self.rests())):
            yield from self._go_on()
            has_ended = isinstance(self.loop.phase, Finished)
        was_over, self._is_over = self._is_over, has_ended and not self.has_reply()
        if self._is_over and not was_over:
            self._log_open_calls()
        return not self._is_over

    def respond(self, retry: Iterable[str]) -> Questions[dict[str, JSON] | None]:
        """Run the calls at the end of the history, and return the user message with their results; None without calls.

        Args:
            retry: the ids of calls to run again.

        """
        if isinstance(retry, str) or not isinstance(retry, Iterable):
            raise TypeError(f"retry: expected a list of call ids, got {describe_type(retry)}")
        again, texts = list(retry), self.history.add_reply(self.loop)
        if is_open := not isinstance(self.loop.phase, Finished) and bool(find_open_calls(texts)):
            self.take(texts)
            self._retry()  # a loop inside a call has failed
        round_ = find_open_round(self.loop) if is_open else None
        calls = () if round_ is None else round_.calls
        known = [call.id for call in calls]
        if strangers := [name for name in again if name not in known]:
            raise UnknownCall(
                f"{_RETRY}: not an open call of the history: {', '.join(map(repr, strangers))}. "
                f"Open calls: {', '.join(known) or 'none'}",
                call=strangers[0],
                known=tuple(known),
            )
        if round_ is None or not calls:
            return None
        settled = [call.id for call in calls if call.id in again and call.status is Status.SETTLED]
        if why := next(filter(None, (explain_no_rerun(name, calls) for name in settled)), None):
            text = f"{_RETRY}: {why}. Append a result yourself instead"
            raise runner_refusal(text, self.phase, _RETRY, "generate_tool_response()", "append_messages()")
        yield from self._settle()
        if settled:
            journal, rerun = self.assembly.journal, tuple(settled)
            order = ev.HistoryTaken((), round_.reply, keeps_unjoined=True, rerun=rerun, via="handle", at=journal.now())
            journal.record(order)
            yield from self._settle()
        return self._response()

    def _settle(self) -> Questions[None]:
        """Run the open round until each call has its result."""
        self._held.stops_before = EndTurn
        while (round_ := find_open_round(self.loop)) is not None and not round_.is_settled():
            yield from self._go_on()

    def _go_on(self) -> Questions[None]:
        """Take the next action: ask the caller, continue a waiting loop, or drive the loop until it rests."""
        if not isinstance(self.loop.phase, Waiting):
            yield self._drive, (self,)
            self.raise_failure()
            return
        self.handle.tick(self.assembly.journal.now())
        turn = self.handle.pending_turn
        if turn is not None and turn.pending:
            yield from self._ask_about(turn)
        else:
            self.handle.resume(Continue())

    def _ask_about(self, turn: Yielded) -> Questions[None]:
        """Call `ask`, if given, to decide the waiting calls.

        Raises:
            UndecidedCalls: calls still wait.

        """
        if self._ask is not None:
            yield self._ask, (turn,)
        if turn.is_spent or not turn.pending:
            return
        waiting = {"/".join(call.path): call for call in turn.pending}
        named = ", ".join(f"{call.name} ({name}: {call.why})" for name, call in waiting.items())
        whys = dict.fromkeys(str(call.why) for call in waiting.values())
        may = "; ".join(f"{why}: {_MAY.get(why, _MAY_ELSE)}" for why in whys)
        results = "message, results" if self.history.leaves_out(self.history.edited or ()) else "results"
        raise UndecidedCalls(
            f"the runner cannot continue: calls wait for a decision: {named}. Decide them with "
            f"runner.decide({{id: decision}}) ({may}), or answer all calls of the reply yourself with "
            f"append_messages({results}). Then iterate again; nothing is lost. Or pass ToolRunner(ask=...)",
            calls=tuple(waiting),
        )

    def _response(self) -> dict[str, JSON] | None:
        """Return the message with the results of the round, as it joins the history."""
        loop = self.loop  # if it has ended, its open calls did not run, and the message is in the history
        answer: dict[str, JSON] = decode(loop.messages[-1] if loop.round is None else make_answer(loop, loop.round))
        return answer if answer["role"] == "user" else None

    def _retry(self) -> None:
        if isinstance(self.loop.phase, Failed):
            self.handle.retry()

    def raise_failure(self) -> None:
        """Raise the error of a failed loop. An invalid reply is not shown later."""
        if isinstance(self.loop.phase, (Failed, TooDeep)):
            self._held.seen = self.loop.iterations
            raise self.handle.into_result().error or AssertionError("a failed loop has an error")

    def _log_open_calls(self) -> None:
        """Log the calls that were open when a limit ended the loop."""
        loop = self.assembly.journal.state.root
        phase = loop.phase
        if isinstance(phase, Finished) and (names := list_open_at_limit(loop)):
            text = "the runner stopped at a limit (%s); these open calls do not run: %s"
            extra = {"loop_id": self.handle.loop_id, "termination": phase.termination.kind}
            LOG.warning(text, phase.termination.kind, ", ".join(names), extra=extra)

    # --- the caller's history ---

    def _take_over(self) -> None:
        """End the body: adopt the caller's history, or let the reply join.

        Raises:
            InvalidHistory: the API would refuse the history. Nothing has changed, so it can be repaired.

        """
        history, loop = self.history, self.loop
        if history.is_untouched(loop):
            history.over()
            return
        is_changed = history.edited is not None or (history.is_tuned and history.kept is not None)
        texts = history.shown(loop) if is_changed else history.add_reply(loop)
        stands = isinstance(loop.phase, Finished) and not (self._is_over and is_changed)
        if not stands:
            self._take_and_hold(texts)
        if is_changed and history.leaves_out(texts):
            LOG.warning(
                "the caller changed the %s in this iteration, but did not append the reply: it is left out, and its "
                "calls do not run",
                "parameters" if history.edited is None else "messages",
                extra={"loop_id": self.handle.loop_id},
            )
        history.over(texts if stands and (is_changed or history.kept is None) else None)

    def _take_and_hold(self, texts: MessageTexts) -> None:
        """Adopt a history. Messages after an open server call are queued until a reply closes that turn."""
        pause = part_at_pause(texts)
        self.take(pause.texts, beside=pause.beside)
        if pause.held:
            self._retry()
            self.handle.resume(InjectMessages([decode(text) for text in pause.held]))

    def take(self, texts: MessageTexts, *, beside: int = 0) -> None:
        """Make the loop adopt a history that differs from its own. The calls at its end are the open round.

        `beside`: see `make_taken`.
        """
        journal, history = self.assembly.journal, self.history
        with journal.lock:
            before, now = journal.state, journal.now()
            if texts == tuple(list_messages(before.root)) and not isinstance(before.root.phase, Finished):
                if history.is_tuned:
                    self._refuse_invalid(before.root)
                return
            texts = history.settle_ended(before.root, texts)
            follow_up = ev.FollowedUp((), at=now) if isinstance(before.root.phase, Finished) else None
            then = before if follow_up is None else step(before, follow_up)  # a further user turn
            taken = make_taken(then.root, texts, now, beside)
            loop = step(then, taken).root
            self._refuse_invalid(loop)
            if isinstance(loop.phase, Ready) and not loop.unjoined and not ends_in_server_call(texts[-1]):
                params = decode(loop.setup.params)
                refuse_last_word(texts, list(join_rest(before.root).messages), params, asked=_STEP)
            for event in filter(None, (follow_up, taken)):
                journal.record(event)

    def _refuse_invalid(self, loop: Loop) -> None:
        params = merge_params(decode(loop.setup.params), self.assembly.runtimes.root.tools)
        refuse_invalid(preview_request(loop), params, asked=_STEP)

    # --- replies ---

    def has_reply(self) -> bool:
        """Return whether there is a reply that the caller has not seen."""
        return self.loop.iterations > self._held.seen and not isinstance(self.loop.phase, Failed)

    def show(self) -> dict[str, JSON]:
        """Return the reply, and mark it as shown."""
        self._held.seen = self.loop.iterations
        bus = self.assembly.journal.bus
        bus.list_since(bus.position)  # a runner shows no events
        self.history.show(self.loop, self._held.asked)
        reply: dict[str, JSON] = decode(self.loop.response or "{}")
        return reply

    def send(self) -> None:
        """Allow the request that a step stopped before, with the current parameters."""
        if self._held.stops_before is SendRequest:
            self._held.stops_before, self.history.is_tuned = Judge, False

    # --- the end of a drive ---

    def rests(self) -> bool | None:
        """Return True if there is nothing to do, or if all of it waits for the caller."""
        state = self.assembly.journal.state
        return all(self._held.holds(state, effect) for effect in outstanding(state)) or None


def _by_name(stored: Mapping[str, JSON], secrets: Secrets) -> dict[str, Any]:
    """Return parameters including those that are never stored, for a comparison."""
    return {**stored, **secrets.options, "mcp_servers": (stored.get("mcp_servers"), secrets.mcp_tokens)}


def runner_refusal(text: str, state: str, asked: str, *allowed: str) -> IllegalCommand:
    """Return the error for a command that a runner does not accept now."""
    return IllegalCommand(text, state=state, asked=asked, allowed=allowed)
