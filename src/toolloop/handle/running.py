"""The steps of a runner, for both of them. It performs nothing.

A runner is an iterator over a loop that shows its replies (`Setup.shows_replies`). A step takes over what the caller
made of the history (see `own_history`). Then, always, the calls that it ends with are run, by the same few lines that
`generate_tool_response()` goes through. Each question of a step is asked by `ask_each`, or awaited by `await_each`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from toolloop.core import events as ev
from toolloop.core.chain import Chain
from toolloop.core.closing import answer_to
from toolloop.core.effects import SendRequest
from toolloop.core.errors import IllegalCommand, UndecidedCalls, UnknownCall
from toolloop.core.jsontext import JSON, canonical, decode
from toolloop.core.machine import outstanding
from toolloop.core.states import Deciding, Failed, Finished, Open, Paused, Proposed, Ready, State
from toolloop.core.values import Call, Continue, Round, Status
from toolloop.handle.judging import Answers
from toolloop.handle.own_history import OwnHistory, call_ids, received_as
from toolloop.handle.parting import parted
from toolloop.handle.turns import Error


class ShowingReplies:
    """What makes a handle one that a runner can be built on."""

    _shows_replies = True
    _called = "ToolRunner(...)"
    #: The history that the last request went out with, and what went along beside it.
    sent: tuple[Chain[str], tuple[str, ...]] = (Chain(), ())

    @property
    def base(self) -> tuple[str, ...]:
        """Both together: as long as the conversation, so only for who looks at it."""
        messages, beside = self.sent
        return (*messages, *beside)

    def _record(self, event: ev.Event) -> State:
        state: State = super()._record(event)  # type: ignore[misc]  # a mixin of the handles
        if isinstance(event, ev.Requested) and not event.path and not event.summary:
            self.sent = state.ledger.messages, tuple(getattr(state, "tail", ()))
        return state


class Stepping(OwnHistory):
    """The half that both runners share. Not public: see `ToolRunner` and `AsyncToolRunner`."""

    # --- the steps ---

    @contextmanager
    def _at_work(self, asked: str) -> Iterator[None]:
        self._refuse_at_work(asked)
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False

    def _to_request(self) -> Answers:
        """Take over what the caller changed, and come to where a request is next. Whether one may be."""
        self._take_over()
        self._is_over = isinstance(self._loop.state, Finished)
        if self._is_over:
            return False
        if isinstance(self._loop.state, Failed):
            self._loop.retry()
        yield from self._settle()
        if isinstance(self._loop.state, Proposed | Paused) and not self._has_reply():
            self._loop.resume(Continue())
        if not isinstance(self._loop.state, Open):
            self._mine = None
        return True

    def _to_reply(self) -> Answers:
        """The next reply; None where the loop has ended."""
        return self._show() if (yield from self._advance()) else None

    def _advance(self, *, stops: bool = False) -> Answers:
        """Come to the next reply, or, if it `stops` there, to where a request is to go out; False: to the end."""
        if not (yield from self._to_request()):
            return False
        while not self._has_reply():
            if isinstance(self._loop.state, Finished):
                self._is_over = True
                return False
            if stops and isinstance(self._loop.state, Ready) and outstanding(self._loop.state) == (SendRequest(),):
                break
            yield from self._drive()
        return True

    def _came(self, turn: Any) -> dict[str, JSON] | None:
        """What a streamed turn came to."""
        if isinstance(turn, Error):
            self._known = self._loop.iterations
            raise turn.error
        return self._show() if self._has_reply() else None  # the loop may have ended in mid-request

    def _last_reply(self) -> dict[str, JSON] | None:
        return None if self._last is None else decode(self._last)

    def _has_reply(self) -> bool:
        """Whether there is a reply that the caller has not seen."""
        return self._loop.iterations > self._known and not isinstance(self._loop.state, Failed)

    def _show(self) -> dict[str, JSON]:
        self._known = self._loop.iterations
        self._last = self._loop.state.ledger.response
        self._reply = decode(self._last)
        self._join = self._joining()
        self._ended = call_ids(self._reply) if isinstance(self._loop.state, Finished) else frozenset()
        if self._join is not None and canonical(decode(self._join)) != (received := received_as(self._reply)):
            self._joined[received] = self._join
        return decode(self._last)  # type: ignore[no-any-return]  # a reply is an object

    def _drive(self) -> Answers:
        """Drive to where somebody has a say."""
        turn = yield self._loop.next_turn, ()
        if isinstance(turn, Error):
            if isinstance(self._loop.state, Failed):
                self._known = self._loop.iterations  # a reply that makes no sense is none to be shown
            raise turn.error

    def _settle(self) -> Answers:
        """Run the open round until all its calls have their results: the one way in which calls run.

        Raises:
            UndecidedCalls: calls wait for the caller.

        """
        while (round_ := _open_round(self._loop.state)) is not None:
            state = self._loop.state
            if isinstance(state, Deciding) and self._loop.pending:
                yield from self._ask_about()
            elif isinstance(state, Proposed | Deciding):
                if isinstance(state, Proposed) and not round_.having(*_UNSETTLED):
                    return
                self._loop.resume(Continue())
            else:
                yield from self._drive()

    def _ask_about(self) -> Answers:
        """Calls wait: let the caller decide them, if they said how."""
        loop = self._loop
        turn = loop.pending_turn
        if turn is not None and self._ask is not None:
            yield self._ask, (turn,)
        if turn is None or loop._goes_on(turn):  # noqa: SLF001 - its own loop
            return
        waiting = {"/".join(call.path): call for call in loop.pending}
        named = ", ".join(f"{call.name} ({name}: {call.why})" for name, call in waiting.items())
        may = "; ".join(
            f"{why}: {_MAY.get(why, _MAY_ELSE)}" for why in dict.fromkeys(str(each.why) for each in loop.pending)
        )
        is_in = self._reply is None or self._join in self._shown()[len(loop.base) :]
        results = "results" if is_in else "message, results"
        raise UndecidedCalls(
            f"the runner cannot go on while calls wait for a decision: {named}. Decide them with "
            f"runner.decide({{id: decision}}) ({may}), or answer them yourself with append_messages({results}), and "
            "iterate again; or give ToolRunner(ask=...). Nothing is lost",
            calls=tuple(waiting),
        )

    def _respond(self, retry: Iterable[str]) -> Answers:
        """The user message that answers the calls with which the history ends; None where there are none."""
        if isinstance(retry, str) or not isinstance(retry, Iterable):
            raise TypeError(f"retry is a {type(retry).__name__}; give a list of call ids")
        again = list(retry)
        if self._is_mine and not isinstance(self._loop.state, Finished):
            if parted(self._shown()).reply is None:
                if again:
                    raise self._nothing_open(again, ())
                return None
            self._take(self._shown())
            self._is_ahead = True
        elif self._is_ahead and self._reply is not None and not isinstance(self._loop.state, Finished):
            self._take(self._kept())
            self._mine = self._before[0]
        if isinstance(self._loop.state, Failed) and self._loop.state.round is not None:
            self._loop.retry()  # what failed is inside of a call
        round_ = _open_round(self._loop.state)
        ran = self._that_ran(round_, again)
        if round_ is None:
            return None
        iteration = round_.iteration
        yield from self._settle()
        if ran:
            self._loop._record(ev.CallsReopened(tuple(ran), at=self._loop._recorder.now()))  # noqa: SLF001 - likewise
            self._loop._move_on()  # noqa: SLF001 - likewise
            yield from self._settle()
        return self._response(iteration)

    def _that_ran(self, round_: Round | None, again: Sequence[str]) -> list[str]:
        """Which of these calls have run; each of them is one of the open round."""
        calls = () if round_ is None else round_.calls
        known = tuple(call.id for call in calls)
        if strangers := [name for name in again if name not in known]:
            raise self._nothing_open(strangers, known)
        settled = [call for call in calls if call.id in again and call.status is Status.SETTLED]
        for call in settled:
            if not call.started:
                raise self._never_ran(call)
        return [call.id for call in settled]

    def _nothing_open(self, named: Sequence[str], known: tuple[str, ...]) -> UnknownCall:
        return UnknownCall(
            f"generate_tool_response(retry=...) names {', '.join(map(repr, named))}: no open call of the history. "
            f"Those are: {', '.join(known) or 'none'}",
            call=named[0],
            known=known,
        )

    def _never_ran(self, call: Call) -> IllegalCommand:
        came = "" if call.result is None else f": its result is {call.result.outcome}"
        return IllegalCommand(
            f"generate_tool_response(retry=...): the call {call.id!r} never ran{came}. Append another result yourself",
            state=type(self._loop.state).__name__,
            asked="generate_tool_response(retry=...)",
            allowed=("generate_tool_response()", "append_messages()"),
        )

    def _response(self, iteration: int) -> JSON:
        """The message with the results of the open round, as it will join the history."""
        state = self._loop.state
        if isinstance(state, Open) and state.round.iteration == iteration:
            return decode(answer_to(state.round, state.ledger.setup.texts))
        last = decode(state.ledger.messages[-1])  # the loop ended meanwhile: its open calls did not run
        return last if last["role"] == "user" else None


# What may be decided of a call that waits, by why it does.
_MAY_ELSE = "Approve, Deny or Answer"
_MAY = {"external": "Answer or Deny", "uncertain": "Rerun, Answer or Deny"}
_UNSETTLED = tuple(status for status in Status if status is not Status.SETTLED)


def _open_round(state: State) -> Round | None:
    return state.round if isinstance(state, Open) else None
