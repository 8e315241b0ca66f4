"""How many tokens the history of a loop has, where each message is looked at once, however often that is asked."""

from __future__ import annotations

from collections.abc import Sequence

from toolloop.core.binding import Places
from toolloop.core.chain import Chain
from toolloop.core.jsontext import decode
from toolloop.core.splicing import common
from toolloop.core.states import Ledger
from toolloop.handle.binding import leaves_out
from toolloop.history.outline import Outline, outline
from toolloop.history.reading import THINKING, kind_of
from toolloop.history.tokens import estimate_tokens, message_tokens


class Meter:
    """The outlines of a list of messages that grows, and is now and then another."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._history: Chain[str] = Chain()
        self._outlines: list[Outline] = []  # of these messages, and of those that went out behind them
        self._sums: list[int] = [0]  # of the tokens up to each message
        self._thoughts: list[int] = [0]  # of those, the tokens of thinking
        self._starts: list[int] = [0]  # from which message on those up to each count
        self._params = ""
        self._fixed, self._leaves_out = 0, False

    def outlines(self, texts: Sequence[str]) -> list[Outline]:
        """The outline of each message, one for each place."""
        self._look(texts)
        return list(self._outlines)

    def _look(self, texts: Sequence[str], tail: Sequence[str] = ()) -> None:
        """Look at the messages, and at those that go out behind them: of a history that has grown, at what is new."""
        made, history = self._outlines, texts if isinstance(texts, Chain) else Chain(texts)
        fresh, same = history.since(self._history), len(self._history)
        if fresh is None:
            same = common(self._history, history)
            self._history, fresh = Chain(history[:same]), history[same:]  # first: whoever is interrupted begins there
        known = {each.text: each for each in made[same:]}
        del made[same:], self._sums[same + 1 :], self._thoughts[same + 1 :], self._starts[same + 1 :]
        for text in (*fresh, *tail):
            each = known.pop(text, None) or outline(text)
            self._starts.append(len(made) if each.compacts else self._starts[-1])
            self._sums.append(self._sums[-1] + each.tokens)
            self._thoughts.append(self._thoughts[-1] + _thoughts(each))
            made.append(each)
        self._history = history

    def _tokens(self, start: int = 0) -> int:
        """About how many tokens the messages have from one of them on; those that the API ignores have none."""
        return self._sums[-1] - self._sums[max(start, self._starts[-1])]

    def fixed(self, params: str) -> int:
        """About how many tokens there are beside the messages. `params`: with all tools among them, as JSON."""
        if params is not self._params:
            body = decode(params)
            self._params, self._fixed = params, estimate_tokens((), system=body.get("system"), tools=body.get("tools"))
            self._leaves_out = leaves_out(body)
        return self._fixed

    def _left_out(self, unbound: Places) -> int:
        """About how many tokens of thinking a request leaves out, of the messages that were looked at last."""
        if not self._leaves_out:
            return 0
        sums, first, end = self._thoughts, self._starts[-1], len(self._outlines)
        places = [(min(max(start, first), end), min(max(stop, first), end)) for start, stop in unbound]
        return sum(sums[stop] - sums[start] for start, stop in places)

    def request(self, ledger: Ledger, tail: Sequence[str], params: str) -> int:
        """About how many tokens the next request of a loop has.

        What the API said of the last one is exact, but of no use once the history is another; and a server that counts
        too little must not keep a history from being compacted. So the larger of the two counts.
        """
        self._look(ledger.messages, tail)
        estimate = self.fixed(params) + self._tokens() - self._left_out(ledger.unbound)
        said = _said(ledger)
        return estimate if said is None else max(estimate, said + self._tokens(self._answered()))

    def _answered(self) -> int:
        """The place after the last message of the model's."""
        outlines = self._outlines
        return next((at for at in range(len(outlines), 0, -1) if outlines[at - 1].role == "assistant"), 0)


def _thoughts(each: Outline) -> int:
    """About how many tokens of a message are thinking."""
    if each.role != "assistant" or 'thinking"' not in each.text:
        return 0
    message = each.message()
    content = message["content"] if isinstance(message["content"], list) else []
    if not any(kind_of(block) in THINKING for block in content):
        return 0
    rest = [block for block in content if kind_of(block) not in THINKING]
    return each.tokens - message_tokens({**message, "content": rest})


def _said(ledger: Ledger) -> int | None:
    """How many tokens the API counted after the last reply; None where that is not known, or of another history."""
    if ledger.iterations <= ledger.edited_at:
        return None
    own = (entry for entry in reversed(ledger.usage_log) if not entry.path and entry.kind == "reply")
    return next((entry.context_tokens for entry in own), None)
