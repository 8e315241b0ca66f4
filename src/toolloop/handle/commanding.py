"""What a caller may say to a loop: decisions, commands, changes. Each is checked whole, then recorded, or refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from attrs import evolve

from toolloop.core import events as ev
from toolloop.core.errors import InvalidHistory
from toolloop.core.jsontext import JSON, decode, encode
from toolloop.core.machine import refusal, step
from toolloop.core.setup import Budget
from toolloop.core.splicing import spliced
from toolloop.core.states import Deciding, Executed, Failed, Finished, Paused, TooDeep
from toolloop.core.values import Command, Continue, InjectMessages, Stop
from toolloop.handle.answering import Answering
from toolloop.handle.beginning import all_params, check_request
from toolloop.handle.config import LoopConfig
from toolloop.handle.decisions import refuse_invalid, to_seconds, to_texts
from toolloop.handle.editing import explained, landing, outgoing, refuse_lost_pause
from toolloop.handle.params import check_params, split
from toolloop.handle.recording import LOG
from toolloop.handle.turns import Moves

T = TypeVar("T")

_SHAPING = frozenset({"model", "tools", "thinking"})  # parameters that decide which histories are valid


class Commanding(Answering):
    """The commands of both handles."""

    def _moves(self) -> Moves:
        return Moves(decide=self._take_decisions, command=self._take_command, tick=self._tick)

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
            if self._say(lambda: self._command(command)):
                self._move_on()
        self._ring()

    def _command(self, command: Command) -> bool:
        """Record a command. Whether it ends the wait."""
        match command:
            case Continue():
                return self._continue()
            case InjectMessages():
                return self._inject(command)
            case Stop():
                return self._stop(command)
        raise TypeError(f"{command!r} is no command; give Continue(), InjectMessages([...]) or Stop()")

    def _continue(self) -> bool:
        if not self._waits():
            raise refusal(self._state, ev.Continued())
        event = ev.Continued(at=self._recorder.now())
        if self._working is not None:
            step(self._state, event)  # raises before the edit is adopted
            self._adopt("continue_loop()")
        self._record(event)
        return True

    def _inject(self, command: InjectMessages) -> bool:
        texts = to_texts(command.messages, where="the injected messages")
        state, asked = self._state, "inject_and_continue()"
        event = ev.Injected(texts, at=self._recorder.now())
        step(state, event)
        self._refuse(landing(state, texts), asked)
        if _has_marks(texts):
            self._refuse(outgoing(state, list(state.ledger.messages), texts), asked)
        if not self._driver.locked():
            self._adopt(asked, texts)
        self._record(event)
        return isinstance(state, Deciding | Executed | Paused)

    def _stop(self, command: Stop) -> bool:
        if not isinstance(command.reason, str | None):
            raise TypeError(f"stop(): the reason is a {type(command.reason).__name__}; give a string, or None")
        if not self._driver.locked():
            self._adopt("stop()", ends=True)
        self._record(ev.Stopped(command.reason, at=self._recorder.now()))
        return True

    def tick(self, now: datetime | float) -> None:
        """Say what time it is: calls whose deadline has passed expire, each with a result that says so.

        A deadline binds whether anybody ticks or not; this settles the calls, so that the loop can go on.

        Args:
            now: an aware datetime, or seconds since the epoch.

        """
        self._tick(to_seconds(now, "tick()"))

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
            self._say(lambda: self._follow_up(messages, replace_last=replace_last))
            self._move_on()

    def _follow_up(self, messages: Sequence[JSON], *, replace_last: bool) -> None:
        texts = to_texts(messages, where="the messages of follow_up()")
        event = ev.FollowedUp(texts, replace_last, at=self._recorder.now())
        if not event.messages:
            raise ValueError("follow_up() got no messages; say something, or call extend() to go on")
        edit = self._edit()
        before = self._state if edit is None else step(self._state, edit)
        then = list(step(before, event).ledger.messages)
        if edit is None and not replace_last and not _has_marks(event.messages):
            then = landing(self._state, event.messages)  # the rest was judged when it came
        self._refuse(then, "follow_up()")
        self._take_edit(edit, "follow_up()")
        self._record(event)

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
            self._say(lambda: self._extend(changes))
            if not self.is_finished:
                self._terminal = None

    def _extend(self, changes: Mapping[str, Any]) -> None:
        limits = evolve(self._state.ledger.setup.limits, **changes)
        event = ev.Extended(limits, at=self._recorder.now())
        edit = self._edit()
        then = step(self._state if edit is None else step(self._state, edit), event)
        if edit is not None:
            self._refuse_next(then, list(then.ledger.messages), "extend()")
        self._take_edit(edit, "extend()")
        self._record(event)

    def retry(self) -> None:
        """After an `Error`: back to the point before the failed request. Nothing was consumed.

        Raises:
            IllegalCommand: no request failed, or the loop may not run at all.
            InvalidHistory: the API would refuse the edited history.

        """
        with self._recorder.lock:
            self._say(self._retry)
            self._move_on()

    def _retry(self) -> None:
        event = ev.Retried(at=self._recorder.now())
        step(self._state, event)
        self._adopt("retry()")
        self._record(event)

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
            refuse_lost_pause(step(self._state, event), asked=asked)
            if _SHAPING & given.keys():
                edit = self._edit()  # what the caller has mended by now is what will go out
                closed = spliced(self._state.ledger.messages, () if edit is None else edit.splices)
                params = all_params(new, self._tools)
                if params["tools"] is None:
                    params["tools"] = []  # it is known that there are none
                refuse_invalid(outgoing(self._state, closed), params, asked=asked)
            with self._recorder.saying():
                self._record(event)
            self._kits.root.requests.update(secrets, changed=given.keys())

    def _refuse(self, texts: Sequence[str], asked: str) -> None:
        """Refuse messages that the API would refuse, and say which of them nobody can edit."""
        try:
            super()._refuse(texts, asked)
        except InvalidHistory as error:
            raise explained(error, texts, self._state) from None


def _has_marks(texts: Sequence[str]) -> bool:
    """Whether messages carry cache marks: those are counted over the whole history."""
    return any('"cache_control"' in text for text in texts)
