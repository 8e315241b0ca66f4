"""Whose history counts: what the caller of a runner reads and says between two steps, and what is made of it.

Between two steps the caller has the word. If they change nothing, the reply joins the history; if they do, the history
is what they made of it, and the loop under the runner takes that over as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from toolloop.core import events as ev
from toolloop.core.errors import IllegalCommand
from toolloop.core.jsontext import JSON, canonical, decode, encode
from toolloop.core.machine import step
from toolloop.core.replies import ends_in_reply, ends_in_server_call
from toolloop.core.splicing import splices_between
from toolloop.core.states import Deciding, Finished, Open, Paused, Proposed, Ready, State
from toolloop.core.tree import round_of
from toolloop.core.usage import IterationUsage, Usage
from toolloop.core.values import Decision
from toolloop.handle.beginning import Beginning, all_params, begin_with, missing
from toolloop.handle.decisions import refuse_invalid, refuse_last_word, to_texts
from toolloop.handle.params import check_params
from toolloop.handle.parting import parted, to_be_sent
from toolloop.handle.recording import LOG
from toolloop.handle.turns import ToolLoopResult
from toolloop.handle.views import ToolCall

_STEP = "the next step of the runner"


class OwnHistory:
    """What a caller reads of a runner, and says to it.

    Attributes:
        _mine: the history as the caller made it, or as it stands while a round of it is open; None: as the loop has it.
        _is_mine: the caller changed it, and no step has taken that over.
        _is_tuned: likewise, of the other parameters.
        _is_ahead: a response was generated for it, so the loop has taken it over already.
        _reply: the reply that the caller sees, between the step that yielded it and the next one.

    """

    _loop: Any
    _ask: Callable[[Any], Any] | None

    def _start(
        self, make: Callable[..., Any], params: Mapping[str, Any], ask: Callable[[Any], Any] | None, **parts: Any
    ) -> None:
        """Set up the loop. A history that ends with calls begins with these."""
        if ask is not None and not callable(ask):
            raise TypeError(f"ask is a {type(ask).__name__}; give a callable that takes a Yielded, or None")
        self._mine: tuple[str, ...] | None = None
        self._is_mine = self._is_tuned = self._is_busy = self._is_over = self._is_ahead = False
        self._join: str | None = None
        self._before: tuple[tuple[str, ...] | None, tuple[str, ...]] = (None, ())
        self._reply: dict[str, JSON] | None = None
        self._last: dict[str, JSON] | None = None
        self._known = 0  # how many replies the caller has seen
        self._ask = ask
        given, texts = params, tuple[str, ...]()
        if "messages" in check_params(params, asked="ToolRunner(...)"):
            texts = self._to_texts(params["messages"])
            given = {**params, "messages": [decode(text) for text in parted(texts).closed]}
        self._loop = make(params=given, **parts)
        if parted(texts).reply is not None:
            self._take(texts)

    # --- what the caller reads ---

    @property
    def params(self) -> dict[str, Any]:
        """The request parameters, and under `messages` the history: a copy, with all that was appended so far."""
        loop = self._loop
        given: dict[str, Any] = loop._kits.root.requests.given(loop.state.ledger.setup.params)  # noqa: SLF001 - its own loop
        return {**given, "messages": [decode(text) for text in self._shown()]}

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls that wait for the caller's word: see `ToolLoopHandle.pending`."""
        pending: tuple[ToolCall, ...] = self._loop.pending
        return pending

    @property
    def total_usage(self) -> Usage:
        """What all answered requests used together, also those whose replies were left out."""
        usage: Usage = self._loop.total_usage
        return usage

    @property
    def usage_log(self) -> tuple[IterationUsage, ...]:
        """What each answered request used."""
        log: tuple[IterationUsage, ...] = self._loop.usage_log
        return log

    @property
    def iterations(self) -> int:
        """How many requests were answered."""
        count: int = self._loop.iterations
        return count

    def into_result(self) -> ToolLoopResult:
        """What came of it so far, and why it ended; the termination of one that goes on is `Unfinished()`."""
        result: ToolLoopResult = self._loop.into_result()
        return result

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {type(self._loop.state).__name__}: {self.iterations} iterations>"

    # --- what the caller says ---

    def decide(self, decisions: Mapping[str | ToolCall, Decision]) -> None:
        """Decide calls that wait: see `ToolLoopHandle.decide`. Then go on iterating."""
        self._loop.decide(decisions)

    def append_messages(self, *messages: Any) -> None:
        """Append messages to the history. In this iteration the reply is then yours to append, or to leave out.

        Args:
            messages: mappings with a role and a content, or objects of the SDK; a reply as it was yielded, too.

        Raises:
            TypeError: something in them is not JSON, or is no message.
            IllegalCommand: the runner is at work.

        """
        self._refuse_at_work("append_messages()")
        texts = self._to_texts(messages)
        for number, text in enumerate(texts):
            if not isinstance(decode(text), dict):
                raise TypeError(f"messages[{number}] is no message; give each as an argument of its own")
        if texts:
            self._change((*self._shown(), *texts))

    def set_messages_params(self, params: Mapping[str, Any] | Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
        """Put other parameters in the place of all, `messages` among them: a mapping, or a function of `params`.

        Raises:
            TypeError: a parameter is not JSON.
            ValueError: one that is missing, not the caller's to give, or that the API refuses.
            IllegalCommand: the runner is at work.

        """
        asked = "set_messages_params()"
        self._refuse_at_work(asked)
        given = params(self.params) if callable(params) else params
        if not isinstance(given, Mapping):
            raise TypeError(f"{asked}: params is a {type(given).__name__}; give a mapping, or a function of one")
        if "messages" not in given:
            raise missing("messages")
        texts = self._to_texts(given["messages"])
        rest = {name: value for name, value in given.items() if name != "messages"}
        begins = begin_with(rest, self._loop._tools, asked=asked)  # noqa: SLF001 - likewise
        self._tune(begins)
        self._change(texts)

    def _tune(self, begins: Beginning) -> None:
        """Other parameters from the next request on."""
        loop = self._loop
        requests, stored = loop._kits.root.requests, loop.state.ledger.setup.params  # noqa: SLF001 - likewise
        old, new = decode(stored), begins.stored
        changed = [name for name in {**old, **new} if canonical(old.get(name)) != canonical(new.get(name))]
        had, has = requests.secrets.options, begins.secrets.options
        changed += [name for name in {**had, **has} if had.get(name) != has.get(name)]
        if requests.secrets.mcp_tokens != begins.secrets.mcp_tokens:
            changed.append("mcp_servers")
        if not changed:
            return
        loop._record(ev.ParamsChanged(encode(new), tuple(dict.fromkeys(changed)), at=loop._recorder.now()))  # noqa: SLF001 - likewise
        requests.update(begins.secrets, changed=changed)
        self._is_tuned = True

    def _change(self, texts: tuple[str, ...]) -> None:
        """Another history; one that is as it was is no change."""
        if not self._is_mine:
            self._before = (self._mine, self._shown())
        self._is_mine = texts != self._before[1]
        self._mine = texts if self._is_mine else self._before[0]

    def _to_texts(self, messages: Any) -> tuple[str, ...]:
        """Messages as JSON texts; the reply that is at hand as it would join by itself."""
        if isinstance(messages, Iterable) and not isinstance(messages, str | bytes | Mapping):
            messages = [_message_of(message) for message in messages]
        texts = to_texts(messages)
        joining = self._join
        if self._reply is None or joining is None:
            return texts
        as_received = canonical({"role": "assistant", "content": self._reply["content"]})
        return tuple(joining if canonical(decode(text)) == as_received else text for text in texts)

    def _refuse_at_work(self, asked: str) -> None:
        if self._is_busy:
            raise IllegalCommand(
                f"{asked}: the runner is at work. Change the history between two steps, in the body of the loop",
                state=type(self._loop.state).__name__,
                asked=asked,
                allowed=("params", "pending", "decide()"),
            )

    # --- whose history counts ---

    def _shown(self) -> tuple[str, ...]:
        """The history as the caller sees it: without the reply at hand, which joins when the body is over."""
        if self._mine is not None:
            return self._mine
        if self._reply is not None:
            base: tuple[str, ...] = self._loop.base
            return base
        state = self._loop.state
        round_ = None if isinstance(state, Finished) else round_of(state)
        tail = getattr(state, "tail", ()) if round_ is None else round_.tail
        return (*state.ledger.messages, *tail)

    def _joining(self) -> str | None:
        """The message that joins the history by itself; None where none does."""
        state, base = self._loop.state, self._loop.base
        if isinstance(state, Open):
            return state.round.reply
        after = (*state.ledger.messages, *getattr(state, "tail", ()))
        return after[-1] if after[:-1] == base and ends_in_reply(after) else None

    def _kept(self) -> tuple[str, ...]:
        """The history with which it goes on if the caller changes nothing."""
        base: tuple[str, ...] = self._loop.base
        return base if self._join is None else (*base, self._join)

    def _take_over(self) -> None:
        """The body of the loop is over: its history counts, or else the reply joins.

        Raises:
            InvalidHistory: the API would refuse it; all stands as it was, to be mended.

        """
        reply, state = self._reply, self._loop.state
        joining = None if reply is None else self._join
        kept = self._kept()
        left_out = reply is not None and self._is_tuned and not self._is_mine
        if not left_out and (not self._is_mine or (joining is not None and self._mine == kept)):
            if self._is_tuned:
                self._refuse(to_be_sent(state) if isinstance(state, Ready | Proposed | Deciding) else [])
            if reply is not None and self._is_ahead and not isinstance(state, Finished):
                self._take(kept)
            if reply is not None:
                self._mine = None if isinstance(state, Finished) else kept
        else:
            texts = self._shown()
            if isinstance(state, Finished) and not self._is_over:
                self._mine = texts  # it stands, and nothing of it is sent or run
            else:
                self._take(texts)
            if joining is not None and joining not in texts:
                LOG.warning(
                    "the caller changed the %s in this iteration, and the reply is not among the messages: it is left "
                    "out, and none of its calls runs",
                    "messages" if self._is_mine else "parameters",
                    extra={"loop_id": self._loop.loop_id},
                )
        self._reply, self._is_mine, self._is_tuned, self._is_ahead = None, False, False, False

    def _take(self, texts: Sequence[str]) -> None:
        """This is the history. The calls that it ends with are the open round."""
        loop = self._loop
        with loop._recorder.lock:  # noqa: SLF001 - its own loop
            events: list[ev.Event] = []
            state = loop.state
            if isinstance(state, Finished):  # a further user turn
                events.append(ev.FollowedUp((), at=loop._recorder.now()))  # noqa: SLF001 - likewise
                state = step(state, events[0])
            events.append(_taking(state, texts, loop._recorder.now()))  # noqa: SLF001 - likewise
            then = step(state, events[-1])
            if isinstance(then, Ready | Proposed | Deciding):
                self._refuse(to_be_sent(then))
            if isinstance(then, Ready) and not then.tail and not ends_in_server_call(texts[-1]):
                params = decode(then.ledger.setup.params)
                refuse_last_word(texts, list(loop.state.ledger.messages), params, asked=_STEP)
            for event in events:
                loop._record(event)  # noqa: SLF001 - likewise
            loop._move_on()  # noqa: SLF001 - likewise
        self._mine = None if isinstance(then, Ready) else tuple(texts)

    def _refuse(self, texts: Sequence[str]) -> None:
        if texts:
            stored = decode(self._loop.state.ledger.setup.params)
            refuse_invalid(texts, all_params(stored, self._loop._tools), asked=_STEP)  # noqa: SLF001 - likewise


def _taking(state: State, texts: Sequence[str], at: float) -> ev.ReplyDiscarded | ev.RoundAdopted:
    """The event by which this is the history of a loop."""
    parts, old = parted(texts), tuple(state.ledger.messages)
    beside = (*old, *_tail_of(state))
    keeps = len(beside) > len(old) and parts.closed == beside
    splices = splices_between(old, old if keeps else parts.closed)
    if parts.reply is None:
        return ev.ReplyDiscarded(splices, keeps_tail=keeps, at=at)
    return ev.RoundAdopted(splices, parts.reply, parts.results, parts.after, keeps_tail=keeps, at=at)


def _tail_of(state: State) -> tuple[str, ...]:
    """The messages beside the history, before the reply that is open."""
    round_ = round_of(state)
    if round_ is not None:
        return round_.tail
    tail: tuple[str, ...] = getattr(state, "tail", ())
    return tail[:-1] if isinstance(state, Paused) and ends_in_reply(tail) else tail


def _message_of(message: Any) -> Any:
    """A message as it is sent back: of a reply, its role and its content."""
    if isinstance(message, Mapping) and message.get("type") == "message" and message.get("role") == "assistant":
        return {"role": "assistant", "content": message.get("content")}
    return message
