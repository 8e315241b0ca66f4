"""Thinking that newer models bind to what stood before it: what of it is left out of a request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolloop.core.binding import Places, all_messages
from toolloop.core.chain import Chain
from toolloop.core.jsontext import JSON, decode, encode
from toolloop.core.replies import ends_in_reply, ends_in_server_call
from toolloop.core.states import Judging, State
from toolloop.core.stops import Fate
from toolloop.core.values import Round
from toolloop.history.models import binds_thinking
from toolloop.history.reading import THINKING


def leaves_out(params: Mapping[str, Any]) -> bool:
    """Whether requests with these parameters leave thinking out that was born after other words.

    That is so for models that bind it, and for those of which nothing is known, unless the caller has said what the API
    is to do about it. With manual thinking nothing is left out: the API asks for it, and no model has both (source:
    rules 27, 29 and 31 of the Messages API).
    """
    thinking = params.get("thinking")
    thinking = thinking if isinstance(thinking, Mapping) else {}
    binding = thinking.get("block_binding")
    if isinstance(binding, Mapping) and binding.get("prefix_mismatch_behavior") is not None:
        return False
    return binds_thinking(params.get("model")) is not False and thinking.get("type") != "enabled"


def hangs_on_thinking(state: State) -> bool:
    """Whether a paused reply goes out only with its thinking: then no other words may come before that.

    No server call ends it: without all that it had, the API would not know it as its own, and takes no other last.
    """
    match state:
        case Judging(fate=Fate.PAUSE, round=Round(reply=str() as reply) as round_):
            tail = (*round_.tail, reply)
        case _:
            tail = getattr(state, "tail", ())
    if not tail or ends_in_server_call(tail[-1]) or not any('thinking"' in text for text in tail):
        return False
    return ends_in_reply(tail) and leaves_out(decode(state.ledger.setup.params))


def has_lost_its_pause(state: State) -> bool:
    """Whether other words came before a paused reply that goes out only with its thinking."""
    places = state.ledger.unbound
    return bool(places) and places[-1][1] > len(state.ledger.messages) and hangs_on_thinking(state)


class Unbound:
    """Messages without their thinking, each made once."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._known: dict[str, str | None] = {}
        # Of the last request: the places, the history, and what was left of it.
        self._last: tuple[Places, Chain[str], Chain[str]] = ((), Chain(), Chain())

    def parted(self, history: Chain[str], tail: Sequence[str], places: Places) -> tuple[Chain[str], list[str]]:
        """The same of a history, and of what goes out behind it. Of one that has grown, only what is new is looked at.

        `places`: of both together, not empty.
        """
        before, known, kept = self._last
        more = history.since(known)
        made: dict[str, str | None] = {}
        if more is not None and places == before and places[-1][1] <= len(known):
            kept, made = kept.extend(more), self._known
        else:
            kept = Chain(self._left(history, places, made))
        start = len(history)
        behind = tuple((max(0, first - start), stop - start) for first, stop in places if stop > start)
        left = self._left(tail, behind, made)
        self._known, self._last = made, (places, history, kept)
        return kept, left

    def without(self, texts: Sequence[str], places: Places) -> list[str]:
        """The messages, those at these places without thinking; one in which nothing is left is left out."""
        made: dict[str, str | None] = {}
        kept = self._left(texts, places, made)
        self._known = made
        return kept

    def _left(self, texts: Sequence[str], places: Places, made: dict[str, str | None]) -> list[str]:
        """The same; what it comes to is noted in `made`."""
        kept: list[str] = []
        at = 0
        for start, stop in places:
            kept += texts[at:start]
            for text in texts[start:stop]:
                made[text] = left = self._known[text] if text in self._known else _without_thinking(text)
                if left is not None:
                    kept.append(left)
            at = max(at, stop)
        return [*kept, *texts[at:]]


def _without_thinking(text: str) -> str | None:
    message = decode(text)
    content = message["content"]
    if message["role"] != "assistant" or not isinstance(content, list):
        return text
    left = [block for block in content if block["type"] not in THINKING]
    if len(left) == len(content):
        return text
    return encode({**message, "content": left}) if left else None


def newly_left_out(before: State, after: State) -> int:
    """How many thinking blocks requests leave out from now on that they did not leave out before."""
    if not after.ledger.unbound:
        return 0
    known = set(_thinking(before))
    return sum(block not in known for block in _thinking(after))


def _thinking(state: State) -> Iterator[str]:
    """The thinking that requests leave out, each block as a text."""
    ledger = state.ledger
    if not ledger.unbound or not leaves_out(decode(ledger.setup.params)):
        return
    texts = all_messages(state)
    for start, stop in ledger.unbound:
        for text in texts[start:stop]:
            message: JSON = decode(text)
            if message["role"] == "assistant" and isinstance(message["content"], list):
                yield from (encode(block) for block in message["content"] if block["type"] in THINKING)
