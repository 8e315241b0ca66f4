"""What a caller may say to a loop: decisions, commands, changes. Each is checked whole, then recorded, or refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve

from toolloop.core import events as ev
from toolloop.core.blocks import RESULT_KINDS
from toolloop.core.errors import IllegalCommand, InvalidHistory, UnknownCall
from toolloop.core.jsontext import JSON, decode, encode
from toolloop.core.machine import refusal, step
from toolloop.core.setup import Budget
from toolloop.core.states import Deciding, Executed, Failed, Finished, Judging, Paused, Running, TooDeep
from toolloop.core.values import Answer, Approve, Command, Continue, Decision, InjectMessages, Stop
from toolloop.handle.config import LoopConfig
from toolloop.handle.decisions import refuse_invalid, to_ruling, to_texts
from toolloop.handle.editing import explained, landing, outgoing
from toolloop.handle.judging import misfit
from toolloop.handle.making import all_params, check_request
from toolloop.handle.params import check_params, split
from toolloop.handle.reading import Reading
from toolloop.handle.recording import LOG
from toolloop.handle.tooling import kinds_for
from toolloop.handle.turns import Moves, bound
from toolloop.handle.views import ToolCall

_SHAPING = frozenset({"model", "tools", "thinking"})  # parameters that decide which histories are valid


class Commanding(Reading):
    """The commands of both handles."""

    def _moves(self) -> Moves:
        return Moves(decide=self._take_decisions, command=self._take_command)

    def decide(self, decisions: Mapping[str | ToolCall, Decision]) -> None:
        """Decide calls by id, or by the `ToolCall` that was shown: all of them, or none.

        Safe from any thread at any time; what is decided while a turn is in progress joins the next one.

        Raises:
            UnknownCall: a call that is not there, or that has its result.
            DecisionConflict: another call than the one shown, or decided otherwise already.
            IllegalCommand: a call that does not wait, or does not take such a decision.

        """
        if not isinstance(decisions, Mapping):
            raise TypeError(f"decide() got a {type(decisions).__name__}; give a mapping of calls to decisions")
        self._take_decisions([bound(call, decision) for call, decision in decisions.items()])

    def _take_decisions(self, decisions: Sequence[tuple[str, Decision]]) -> None:
        """Record decisions, all or none. See `decide`."""
        with self._recorder.lock:
            try:
                self._decide(decisions)
            except IllegalCommand as error:
                error.state = type(self._state).__name__  # one error, one meaning: where the loop is
                raise
        self._ring()

    def _decide(self, decisions: Sequence[tuple[str, Decision]]) -> None:
        now = self._recorder.now()
        state = self._state
        if not decisions:
            return
        if not isinstance(state, Judging | Deciding | Running):
            named = decisions[0][0]
            raise UnknownCall(
                f"a decision names the call {named!r}, and no call waits: the loop is {type(state).__name__}",
                call=named,
                known=(),
            )
        kinds = {call.id: kinds_for(call) for call in state.round.calls}
        known = self._known_tools() if any(map(_may_refer, decisions)) else None
        rulings = tuple(
            (
                call_id,
                to_ruling(
                    decision, call_id=call_id, now=now, kinds=kinds.get(call_id, RESULT_KINDS), known_tools=known
                ),
            )
            for call_id, decision in decisions
        )
        for call_id, decision in decisions:
            self._check_edit(call_id, decision)
        self._record(ev.Decided(rulings=rulings, at=now))

    def _check_edit(self, call_id: str, decision: Decision) -> None:
        """An edited input that does not fit the schema is the caller's mistake, not the model's."""
        state = self._state
        call = state.round.find(call_id) if isinstance(state, Judging | Deciding | Running) else None
        tool = self._tools.get(call.name) if call is not None else None
        if tool is None or not isinstance(decision, Approve) or decision.input is None:
            return
        if problem := misfit(tool, decision.input):
            raise IllegalCommand(
                f"approve of the call {call_id!r}: the edited input does not fit the schema of {tool.name}. {problem}",
                state=type(state).__name__,
                asked="approve",
                allowed=("approve", "deny", "answer"),
            )

    def resume(self, command: Command) -> None:
        """Give a command without the `Yielded` in hand: `Continue()`, `InjectMessages([...])` or `Stop(...)`.

        `Stop` and `InjectMessages` are possible also where none waits, and from any thread; while a request is under
        way they count once it is answered. A stop lets running tools be: they are told through `ToolContext.cancelled`,
        and what they return no longer counts. A call that runs alone in the driver's own thread is waited for.
        After a terminal result this does nothing, and logs that.

        Raises:
            IllegalCommand: nothing waits for `Continue`.
            UndecidedCalls: calls wait for a decision.
            InvalidHistory: the API would refuse the injected messages there.

        """
        with self._recorder.lock:
            if isinstance(self._state, Finished | Failed | TooDeep):
                LOG.info("a command after the end does nothing", extra={"loop_id": self.loop_id})
                return
            self._take_command(command)

    def _take_command(self, command: Command) -> None:
        """Record a command. See `resume`."""
        with self._recorder.lock:
            match command:
                case Continue():
                    self._continue()
                case InjectMessages():
                    self._inject(command)
                case Stop():
                    self._stop(command)
                case _:
                    raise TypeError(f"{command!r} is no command; give Continue(), InjectMessages([...]) or Stop()")
        self._ring()

    def _continue(self) -> None:
        if not isinstance(self._state, Deciding | Executed | Paused):
            raise refusal(self._state, ev.Continued())
        event = ev.Continued(at=self._recorder.now())
        if self._working is not None:
            step(self._state, event)  # raises before the edit is adopted
            self._adopt("continue_loop()")
        self._record(event)
        self._move_on()

    def _inject(self, command: InjectMessages) -> None:
        texts = to_texts(command.messages, where="the injected messages")
        state, asked = self._state, "inject_and_continue()"
        event = ev.Injected(texts, hold=self._in_flight, at=self._recorder.now())
        step(state, event)
        self._refuse(landing(state, texts), asked)
        if _has_marks(texts):
            self._refuse(outgoing(state, list(state.ledger.messages), texts), asked)
        if not self._driver.locked():
            self._adopt(asked, texts)
        self._record(event)
        if isinstance(state, Deciding | Executed | Paused):
            self._move_on()

    def _stop(self, command: Stop) -> None:
        if not isinstance(command.reason, str | None):
            raise TypeError(f"stop(): the reason is a {type(command.reason).__name__}; give a string, or None")
        event = ev.Stopped(command.reason, at=self._recorder.now())
        if self._in_flight:
            self._stop_staged = event
            return
        if not self._driver.locked():
            self._adopt("stop()")
        self._record(event)
        self._move_on()

    def follow_up(self, messages: Sequence[JSON], replace_last: bool = False) -> None:
        """Begin a further user turn of the same conversation, after `Completed`.

        Args:
            messages: what the user says.
            replace_last: put it in the place of the last user turn, for one that was refused.

        Raises:
            IllegalCommand: the loop has not ended.
            InvalidHistory: the API would refuse the messages there.

        """
        with self._recorder.lock:
            event = ev.FollowedUp(
                to_texts(messages, where="the messages of follow_up()"), replace_last, at=self._recorder.now()
            )
            if not event.messages:
                raise ValueError("follow_up() got no messages; say something, or call extend() to go on")
            edit = self._edit()
            before = self._state if edit is None else step(self._state, edit)
            then = list(step(before, event).ledger.messages)
            if edit is None and not replace_last and not _has_marks(event.messages):
                then = landing(self._state, event.messages)  # the rest was judged when it came
            self._refuse(then, "follow_up()")
            self._take_edit(edit)
            self._record(event)
            self._move_on()

    def extend(
        self,
        max_iterations: int | None = None,
        max_pauses: int | None = None,
        timeout: float | None = None,
        budget: Budget | None = None,
    ) -> None:
        """Set other limits; None leaves one as it is. Where a limit ended the loop, it goes on where it stopped.

        A limit can be raised as far as you like, but not taken away.

        Raises:
            IllegalCommand: the loop may not run at all.
            ValueError: a limit that makes no sense.

        """
        given = {
            "max_iterations": max_iterations,
            "max_pauses": max_pauses,
            "timeout": timeout,
            "budget": budget,
        }
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        LoopConfig(**changes)  # it judges the values, each by its field
        with self._recorder.lock:
            limits = evolve(self._state.ledger.setup.limits, **changes)
            event = ev.Extended(limits, at=self._recorder.now())
            edit = self._edit()
            then = step(self._state if edit is None else step(self._state, edit), event)
            if edit is not None:
                self._refuse(outgoing(then, list(then.ledger.messages)), "extend()")
            self._take_edit(edit)
            self._record(event)
            if not self.is_finished:
                self._terminal = None

    def retry(self) -> None:
        """After an `Error`: back to the point before the failed request. Nothing was consumed.

        Raises:
            IllegalCommand: no request failed, or the loop may not run at all.
            InvalidHistory: the API would refuse the edited history.

        """
        with self._recorder.lock:
            event = ev.Retried(at=self._recorder.now())
            step(self._state, event)
            self._adopt("retry()")
            self._record(event)
            self._move_on()

    def update_params(self, **changes: Any) -> None:
        """Other request parameters from the next request on; None takes one away.

        A `container` counts also while code waits in another one for its results.

        Raises:
            TypeError: a parameter is not JSON.
            ValueError: a parameter that is not given this way (`messages`, `stream`).
            InvalidHistory: the API would refuse the history with these parameters.

        """
        asked = "update_params()"
        if "messages" in changes:
            raise ValueError(f"{asked}: messages are changed with messages_mut(), not as a parameter")
        given = check_params(changes, asked=asked)
        stored, secrets = split({name: value for name, value in given.items() if value is not None})
        with self._recorder.lock:
            setup = self._state.ledger.setup
            removed = {name for name, value in given.items() if value is None}
            if needed := removed & {"model", "max_tokens"}:
                raise ValueError(f"{asked}: {', '.join(sorted(needed))} cannot be taken away; give another value")
            old = {name: value for name, value in decode(setup.params).items() if name not in removed}
            new = old | stored
            check_request(new, self._tools, asked=asked)
            event = ev.ParamsChanged(encode(new), tuple(given), at=self._recorder.now())
            step(self._state, event)
            if _SHAPING & given.keys():
                edit = self._edit()  # what the caller has mended by now is what will go out
                closed = self._state.ledger.messages if edit is None else edit.messages
                params = all_params(new, self._tools)
                if params["tools"] is None:
                    params["tools"] = []  # it is known that there are none
                refuse_invalid(outgoing(self._state, closed), params, asked=asked)
            self._record(event)
            self._requests.update(secrets, changed=given.keys())

    def _refuse(self, texts: Sequence[str], asked: str) -> None:
        """Refuse messages that the API would refuse, and say which of them nobody can edit."""
        try:
            super()._refuse(texts, asked)
        except InvalidHistory as error:
            raise explained(error, texts, self._state) from None

    def _ring(self) -> None:
        """Wake the driver up, if one waits for calls to end."""


def _may_refer(decision: tuple[str, Decision]) -> bool:
    """Whether a decision may refer to a tool: only blocks can, and to look all tools up takes the whole history."""
    return isinstance(decision[1], Answer) and not isinstance(decision[1].content, str)


def _has_marks(texts: Sequence[str]) -> bool:
    """Whether messages carry cache marks: those are counted over the whole history."""
    return any('"cache_control"' in text for text in texts)
