"""Decide a call: what the command may decide, and what came of it by the decision that stands."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from attrs import frozen
from rich.text import Text

from toolloop._cli.arguments import Me
from toolloop._cli.screen.conversation import preview_lines
from toolloop._cli.screen.tables import clock_time
from toolloop._cli.screen.texts import Line, exact, input_lines, prose_lines
from toolloop._interface.standing import Standing
from toolloop.errors import CallerError, InvalidEdit, LoopNotFound
from toolloop.inbox.inbox import Inbox
from toolloop.inbox.shown.cards import Card, card_of
from toolloop.inbox.shown.keys import key_of
from toolloop.inbox.shown.previews import first_lines
from toolloop.inbox.shown.words import PAST, count, duration, time_left
from toolloop.machine.values.calls import Decision
from toolloop.machine.values.names import Person
from toolloop.stores.optional import read_time, watch_store
from toolloop.stores.protocol import Store

_START = 1.0  # seconds that a tool has to start, before a person reads that it has not
_PAGE = "Decide on the approval page, where people sign in: toolloop serve --who MODULE:FUNCTION"


@frozen
class Came:
    """What came of a decision.

    Attributes:
        kind: `sent`: it stands or is one of several; `other`: another one stands; `refused`: the call still waits.
        text: it in words.

    """

    kind: str
    text: str


@frozen
class Desk:
    """Where one person decides the calls of a store."""

    store: Store
    me: Me

    def card(self, loop_id: str, path: tuple[str, ...]) -> Card:
        """Return a call as it is now.

        Raises:
            LoopNotFound, UnknownCall: the loop or the call does not exist.

        """
        return card_of(self.store, key_of(loop_id, path), Person(self.me.name), read_time(self.store))

    def why_not_here(self, card: Card) -> str:
        """Return why the command cannot approve a call that waits; empty if it can."""
        if card.input.too_long:
            return card.input.too_long
        need = card.need
        if not need.is_special:
            return ""
        if not need.is_mine or need.given:
            why = need.note(card.now) if need.has_mine else "The command cannot tell people apart, and knows no groups."
            return f"This approval is not for the command: the call needs {need.still_needed}. {why} {_PAGE}"
        return "This call counts people, so --by cannot be used. Run the command without it." if self.me.note else ""

    def takes(self, card: Card) -> frozenset[str]:
        """Return the decisions that the command offers."""
        return card.takes - {"approve", "edit", "rerun", "grant"} if self.why_not_here(card) else card.takes - {"grant"}

    def decide(self, card: Card, decision: Decision) -> Came:
        """Store a decision, and return what came of it.

        Raises:
            InvalidEdit: an edited input is invalid; nothing is stored.

        """
        name = "/".join(card.path)
        try:
            standing = Inbox(self.store, via="command").decide(card.loop_id, {name: decision})[name]
        except (InvalidEdit, LoopNotFound):
            raise
        except CallerError as error:
            stands = what_stands(self.card(card.loop_id, card.path))
            return Came("other" if stands else "refused", f"not sent: {stands or error}")
        return self.came(card, standing)

    def came(self, card: Card, standing: Standing) -> Came:
        """Return what came of a decision that was stored."""
        now = self._after(card)
        if not standing.is_yours:
            ago = duration(now.now - standing.at.timestamp())
            by = standing.by or "a person without a name"
            return Came(
                "other", f"{by} had {PAST[standing.kind]} this already, {ago} ago; your decision changed nothing"
            )
        return Came("sent", f"{PAST[standing.kind]}; {_fate(now, standing.kind)}")

    def _after(self, card: Card) -> Card:
        """Return a call after its decision: soon, for a driver that waits starts it at once."""
        news, end = threading.Event(), time.monotonic() + _START
        with watch_store(self.store, news.set):
            while True:
                now, left = self.card(card.loop_id, card.path), end - time.monotonic()
                if now.fate != "It starts now." or left <= 0:
                    return now
                news.wait(min(left, 0.1))
                news.clear()


def what_stands(card: Card) -> str:
    """Return what stands in a call that does not wait any more; empty if it waits."""
    if card.is_expired:
        return f"it expired {duration(card.now - (card.expires_at or card.now))} ago; it did not run"
    if card.waits:
        return ""
    if card.decision is None:
        return "the call no longer waits"
    record, at = card.decision
    why = f" (“{record.reason}”)" if record.reason else ""
    return f"{card.by} {PAST[record.kind]} this at {clock_time(at)}{why}. {card.fate}"


def _fate(card: Card, kind: str) -> str:
    """Return what happens to a call that was decided just now."""
    if kind in ("deny", "answer"):
        return "it does not run"
    if card.waits:
        given, need = card.need.progress
        return f"{given} of {need}; it runs {card.need.when}"
    started = card.story.started
    if started is not None and card.has_started:
        return f"it started at {clock_time(started)}" + (f". {card.fate}" if card.story.ended else "")
    if card.fate == "It starts now." and not card.whole.driven:
        return "it starts when a worker drives the loop"
    return card.fate[:1].lower() + card.fate[1:].rstrip(".")


# --- a call, as lines ------------------------------------------------------------------------------------------------


def card_lines(card: Card, why_not: str) -> Iterator[Line]:
    """Yield a call as a person decides it: why it waits, then its whole input as the last.

    Args:
        card: the call.
        why_not: why the command cannot approve it; empty if it can.

    """
    yield Line(Text(_facts(card), "dim"), "")
    yield from (Line(exact(f"{key}: {value}", "dim"), "") for key, value in card.metadata.items())
    yield from (Line(exact(note, "bold yellow"), "! ", wraps=True) for note in _notes(card, why_not))
    for label, text in (("User", card.asked), ("Agent", card.prompt), ("Model", card.said)):
        yield from _why_lines(label, text)
    for rule, reason in card.rules:
        yield from _why_lines("Rule", ": ".join(filter(None, (rule, reason))))
    if card.hints:
        yield from _why_lines("Server", f"{card.hints} (hints, not checked)")
    if card.call is not None and card.call.preview:
        yield from preview_lines(card.call.preview)
    runs = f"This runs {card.need.when}" if why_not and card.need.is_special else card.what_runs
    yield Line(Text(f"{runs}: ", "bold").append(card.input.words, "not bold dim"), "", wraps=True)
    yield from input_lines(card.input)
    if card.secrets:
        names = Text(", ").join(exact(name) for name in card.secrets)
        yield Line(names.append(" is hidden: you decide it unread"), "! ")


def _facts(card: Card) -> str:
    left = "no deadline" if card.expires_at is None else time_left(card.expires_at - card.now)
    return f"{left} · waits {duration(card.now - card.since)} · {card.tokens:,} tokens so far"


def _notes(card: Card, why_not: str) -> Iterator[str]:
    if card.why == "uncertain":
        at = "" if card.story.started is None else f"at {clock_time(card.story.started)} "
        yield f"This call may have run. It started {at}and its end is unknown. Find out what it did before you decide."
    if why_not and not card.input.too_long:
        yield why_not
    elif card.need.is_special:
        yield card.need.note(card.now)
    if card.call is not None and not card.call.is_edit_judged:
        yield "A person has edited this input. The rules have not judged it yet, so more approvals may be needed."
    if card.odd:
        yield f"{count(card.odd, 'character')} in this input can mislead: invisible, imitating or turning the text."


def _why_lines(label: str, text: str) -> Iterator[Line]:
    """Yield the first lines of a text that says why."""
    cut = first_lines(text)
    for number, line in enumerate(prose_lines(cut) if text else ()):
        yield Line(line, f"{'' if number else label:<6} ", wraps=True)
    if cut != text:
        yield Line(Text(f"… {len(text) - len(cut):,} more characters: toolloop show", "dim"), " " * 7)
