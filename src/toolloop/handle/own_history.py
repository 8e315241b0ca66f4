"""Whose history counts: what the caller of a runner reads and says between two steps, and what is made of it.

Between two steps the caller has the word. If they change nothing, the reply joins the history; if they do, the history
is what they made of it, and the loop under the runner takes that over as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from toolloop.core import events as ev
from toolloop.core.closing import answer_to
from toolloop.core.errors import IllegalCommand, InvalidHistory
from toolloop.core.jsontext import JSON, canonical, decode, encode
from toolloop.core.machine import step
from toolloop.core.policy import settle, settle_open
from toolloop.core.replies import calls_in, ends_in_reply, ends_in_server_call
from toolloop.core.states import Finished, Open, Ready
from toolloop.core.tree import round_of
from toolloop.core.usage import IterationUsage, Usage
from toolloop.core.values import Decision, Round
from toolloop.handle.beginning import Beginning, all_params, begin_with, missing
from toolloop.handle.decisions import refuse_invalid, refuse_last_word, to_texts
from toolloop.handle.editing import last_round
from toolloop.handle.params import check_params
from toolloop.handle.parting import as_sent_back, parted, taking, to_be_said, to_be_sent, together
from toolloop.handle.recording import LOG
from toolloop.handle.turns import ToolLoopResult
from toolloop.handle.views import ToolCall

_STEP = "the next step of the runner"
_SOMEBODY = '{"role":"user","content":"-"}'
# What makes a message more than an affair of its own round: it is judged with the whole history.
_OF_THE_WHOLE = tuple(
    f'"{kind}'
    for kind in (
        "cache_control",
        "image",
        "document",
        "search_result",
        "server_tool",
        "mcp_tool",
        "code_exec",
        "compaction",
    )
)
# Calls that may be open anywhere in a history, as long as nothing but results follows them.
_OPEN = ('"server_tool', '"mcp_tool')


class OwnHistory:
    """What a caller reads of a runner, and says to it.

    Attributes:
        _mine: the history as the caller made it, or as it stands while a round of it is open, which is put together
            when somebody looks; None: as the loop has it.
        _is_mine: the caller changed it, and no step has taken that over.
        _is_tuned: likewise, of the other parameters.
        _is_ahead: a response was generated for it, so the loop has taken it over already.
        _reply: the reply that the caller sees, between the step that yielded it and the next one.
        _last: the text of the last one they saw; `_known`: how many these were.
        _join: the message that joins by itself for `_reply`; `_joined`: of each reply that joins in other words than it
            was yielded in, these.
        _ended: the ids of the calls of a reply that ended the loop: none of them runs, whatever is said later.
        _before: `_mine`, and the history as it was shown, before the first change of this iteration.
        _is_busy: a step is under way; `_is_over`: the iteration has come to an end.

    """

    _loop: Any
    _ask: Callable[[Any], Any] | None

    def _start(
        self, make: Callable[..., Any], params: Mapping[str, Any], ask: Callable[[Any], Any] | None, **parts: Any
    ) -> None:
        """Set up the loop. A history that ends with calls begins with these."""
        if ask is not None and not callable(ask):
            raise TypeError(f"ask is a {type(ask).__name__}; give a callable that takes a Yielded, or None")
        self._mine: tuple[str, ...] | Callable[[], tuple[str, ...]] | None = None
        self._searched: tuple[tuple[str, ...], bool] = ((), False)  # a history, and whether a call may be open in it
        self._is_mine = self._is_tuned = self._is_busy = self._is_over = self._is_ahead = False
        self._join: str | None = None
        self._joined: dict[str, str] = {}
        self._ended: frozenset[str] = frozenset()
        self._before: tuple[Any, tuple[str, ...]] = (None, ())
        self._reply: dict[str, JSON] | None = None
        self._last: str | None = None
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
        """Decide calls that wait: see `ToolLoopHandle.decide`. Then go on iterating.

        Raises:
            IllegalCommand: no call waits.
            UnknownCall, DecisionConflict: as for a handle.

        """
        if not self.pending:
            raise IllegalCommand(
                "decide(): no call waits for a decision now. Calls are asked about after your code, in the next step, "
                "or in generate_tool_response()",
                state=type(self._loop.state).__name__,
                asked="decide()",
                allowed=("iterating the runner", "generate_tool_response()"),
            )
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
            messages = [as_sent_back(message) for message in messages]
        texts, joined = to_texts(messages), self._joined
        if self._reply is not None and self._join is not None:
            joined = joined | {received_as(self._reply): self._join}
        return tuple(joined.get(canonical(decode(text)), text) for text in texts) if joined else texts

    def _refuse_at_work(self, asked: str) -> None:
        if self._is_busy:
            changes = asked in ("append_messages()", "set_messages_params()")
            how = "Change the history between two steps, in the body of the loop" if changes else "One may at a time"
            raise IllegalCommand(
                f"{asked}: the runner is at work. {how}",
                state=type(self._loop.state).__name__,
                asked=asked,
                allowed=("params", "pending", "decide()"),
            )

    # --- whose history counts ---

    def _shown(self) -> tuple[str, ...]:
        """The history as the caller sees it: without the reply at hand, which joins when the body is over."""
        if callable(self._mine):
            self._mine = self._mine()
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
        state = self._loop.state
        if isinstance(state, Open):
            return state.round.reply
        base = self._loop.base
        after = (*state.ledger.messages, *getattr(state, "tail", ()))
        return after[-1] if after[:-1] == base and ends_in_reply(after) else None

    def _kept(self) -> tuple[str, ...]:
        """The history with which it goes on if the caller changes nothing."""
        messages, beside = self._loop.sent
        return together(messages, beside, self._join)

    def _take_over(self) -> None:
        """The body of the loop is over: its history counts, or else the reply joins.

        Raises:
            InvalidHistory: the API would refuse it; all stands as it was, to be mended.

        """
        reply, state = self._reply, self._loop.state
        joining = None if reply is None else self._join
        left_out = reply is not None and self._is_tuned and not self._is_mine
        if not left_out and (not self._is_mine or (joining is not None and self._mine == self._kept())):
            if self._is_tuned and isinstance(state, Ready | Open):
                self._refuse(to_be_sent(state))
            if reply is not None and self._is_ahead and not isinstance(state, Finished):
                self._take(self._kept())
            if reply is not None:
                messages, beside = self._loop.sent
                later = partial(together, messages, beside, self._join)
                self._mine = None if isinstance(state, Finished) else later
        else:
            texts = self._shown()
            if isinstance(state, Finished) and not self._is_over:
                self._mine = texts  # it stands, and nothing of it is sent or run
            else:
                self._take(texts)
            if joining is not None and joining not in texts and not _holds(texts, _asked(reply)):
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
        texts = self._with_ended(texts)
        with loop._recorder.lock:  # noqa: SLF001 - its own loop
            events: list[ev.Event] = []
            state = loop.state
            if isinstance(state, Finished):  # a further user turn
                events.append(ev.FollowedUp((), at=loop._recorder.now()))  # noqa: SLF001 - likewise
                state = step(state, events[0])
            events.append(taking(state, texts, loop._recorder.now()))  # noqa: SLF001 - likewise
            then = step(state, events[-1])
            if isinstance(then, Ready | Open):
                self._refuse_new(to_be_sent(then))
                if said := to_be_said(then):
                    self._refuse(said)
            if isinstance(then, Ready) and not then.tail and not ends_in_server_call(texts[-1]):
                params = decode(then.ledger.setup.params)
                refuse_last_word(texts, list(loop.state.ledger.messages), params, asked=_STEP)
            for event in events:
                loop._record(event)  # noqa: SLF001 - likewise
            loop._move_on()  # noqa: SLF001 - likewise
        self._mine = None if isinstance(then, Ready) else tuple(texts)

    def _with_ended(self, texts: Sequence[str]) -> Sequence[str]:
        """The history in which no call of a reply that ended the loop is open: as at that end, it was not run."""
        if not self._ended:
            return texts
        parts = parted(texts)
        asked = () if parts.reply is None else calls_in(decode(parts.reply)["content"])
        if parts.reply is None or not self._ended.issuperset(call.id for call in asked):
            return texts
        words, given = self._loop.state.ledger.setup.texts, dict(parts.results)
        calls = tuple(settle(call, given[call.id]) if call.id in given else call for call in asked)
        round_ = settle_open(Round(0, parts.reply, calls), words)
        return (*parts.closed, parts.reply, answer_to(round_, words), *parts.after)

    def _refuse_new(self, texts: Sequence[str]) -> None:
        """Refuse what is new behind the last request, with the round that it follows; the rest was judged when it came.

        What fails there is judged with the whole, which says where it stands.
        """
        base = self._loop.base
        start = len(base) - len(last_round(base))
        new = texts[start:]
        is_longer = start and not self._is_tuned and tuple(texts[: len(base)]) == base
        if is_longer and not _holds(new, _OF_THE_WHOLE) and not self._may_be_open(base):
            with suppress(InvalidHistory):
                self._refuse((_SOMEBODY, *new))
                return
        self._refuse(texts)

    def _may_be_open(self, base: tuple[str, ...]) -> bool:
        """Whether a call of `_OPEN` is anywhere in a history; of one that has grown, only what is new is searched."""
        known, found = self._searched
        if base[: len(known)] != known:
            known, found = (), False
        found = found or _holds(base[len(known) :], _OPEN)
        self._searched = base, found
        return found

    def _refuse(self, texts: Sequence[str]) -> None:
        stored = decode(self._loop.state.ledger.setup.params)
        refuse_invalid(texts, all_params(stored, self._loop._tools), asked=_STEP)  # noqa: SLF001 - likewise


def received_as(reply: Mapping[str, JSON]) -> str:
    """A reply as it stands in a history word by word, to be found by."""
    return canonical({"role": "assistant", "content": reply["content"]})


def call_ids(reply: Mapping[str, JSON] | None) -> frozenset[str]:
    """The ids of the calls in a reply."""
    blocks = () if reply is None else reply["content"]
    return frozenset(block["id"] for block in blocks if block["type"] == "tool_use")


def _asked(reply: Mapping[str, JSON] | None) -> list[str]:
    """How the calls of a reply stand in a message."""
    return [f'"id":{encode(name)}' for name in call_ids(reply)]


def _holds(texts: Iterable[str], parts: Iterable[str]) -> bool:
    """Whether one of these parts is anywhere in messages."""
    wanted = tuple(parts)
    return any(part in text for text in texts for part in wanted)
