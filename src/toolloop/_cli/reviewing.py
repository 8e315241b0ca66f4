"""`review`: decide the waiting calls one after the other, with single keys."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import click
from attrs import define, evolve, field
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from toolloop._cli.arguments import Me, by_option, is_in_terminal, metadata_option, object_of, tool_option
from toolloop._cli.desk import Desk, card_lines, what_stands
from toolloop._cli.group import Interrupted, command
from toolloop._cli.screen.keys import ask_key, drop_early_keys
from toolloop._cli.screen.texts import Line, change_lines, exact, print_lines
from toolloop.errors import InvalidEdit, LoopNotFound, UnknownCall
from toolloop.inbox.inbox import Inbox
from toolloop.inbox.items import InboxCall
from toolloop.inbox.shown.cards import Card
from toolloop.inbox.shown.edits import changed_fields
from toolloop.inbox.shown.words import count
from toolloop.machine.values.calls import Answer, Approve, Decision, Deny, Rerun
from toolloop.stores.optional import read_time
from toolloop.stores.protocol import Store

_KEYS = (
    ("a", "approve", "approve"),
    ("d", "deny", "deny…"),
    ("e", "edit", "edit…"),
    ("w", "answer", "answer…"),
    ("r", "rerun", "run it again…"),
)


@command()
@metadata_option
@tool_option
@by_option
def review(store: Store, metadata: dict[str, str], tool: str | None, by: Me) -> None:
    """Decide the waiting calls one after the other, in a terminal.

    Each is shown whole. Then one key decides: a approves, d denies, e edits the input in $EDITOR, w answers, r runs a
    call again whose end is unknown, s skips, q quits.
    """
    if not is_in_terminal():
        raise click.UsageError("`review` needs a terminal. In a program, use `pending --json`, `approve` and `deny`")
    Review(Desk(store, by), {"metadata": metadata or None, "tool": tool}).run()


@define
class Review:
    """A review of calls.

    Attributes:
        desk: who decides, and where.
        wanted: the arguments of `Inbox.pending`.
        seen: the calls that were shown, each with its digest.
        done: how many were decided, skipped, or decided by others.
        typed: the input of the call that the person typed; empty if none was.

    """

    desk: Desk
    wanted: Mapping[str, Any]
    console: Console = field(factory=lambda: Console(highlight=False))
    seen: set[tuple[str, tuple[str, ...], str]] = field(factory=set)
    done: Counter[str] = field(factory=Counter)
    typed: str = ""

    def run(self) -> None:
        """Review until no call is left, or the person quits."""
        try:
            while (found := self._next()) is not None:
                if not self._review(*found):
                    break
            else:
                self.console.print("No call is left." if self.done else "No call waits.")
            self.console.print(self._figures())
        except EOFError:
            self.console.print(self._figures())
        except KeyboardInterrupt:
            raise Interrupted(f"{self._figures()} Nothing else was sent.") from None

    def _figures(self) -> str:
        names = ("decided", "skipped", "decided by others")
        return ", ".join(f"{self.done[name]} {name}" for name in names if self.done[name] or name == "decided") + "."

    def _next(self) -> tuple[InboxCall, int] | None:
        """Return the next call, and how many are left with it."""
        left = [
            call
            for call in Inbox(self.desk.store).pending(limit=2**31, **self.wanted)
            if (call.loop_id, call.path, call.digest) not in self.seen
        ]
        return (left[0], len(left)) if left else None

    def _review(self, call: InboxCall, left: int) -> bool:
        """Show a call until it is decided or skipped. Return whether the review goes on."""
        self.seen.add((call.loop_id, call.path, call.digest))
        self.typed = ""
        try:
            card = self.desk.card(call.loop_id, call.path)
            while card.waits:
                self.seen.add((call.loop_id, call.path, _state(card)[0]))
                self._show(card, left)
                if (goes_on := self._decide(card)) is not None:
                    return goes_on
                card = self.desk.card(call.loop_id, call.path)
                if card.waits:
                    self._tell("The call has changed.")
            self.done["decided by others"] += 1
            self._tell(what_stands(card))
        except (LoopNotFound, UnknownCall):
            self.console.print("The loop was deleted meanwhile.")
        return True

    def _show(self, card: Card, left: int) -> None:
        title = exact(card.name, "bold cyan").append(" in ", "default").append_text(exact(card.loop_id, "bold"))
        for name in card.names[:-1]:
            title.append(" > ", "default").append_text(exact(name, "bold"))
        title.append(f" · {count(left, 'call')} left", "default")
        self.console.print()
        self.console.print(Rule(title, align="left"))
        print_lines(self.console, card_lines(card, self.desk.why_not_here(card)))

    def _bar(self, card: Card, has_early_keys: bool) -> None:  # noqa: FBT001 - for partial
        if has_early_keys:
            self._tell("Keys that were pressed before this line did nothing.")
        takes = self.desk.takes(card)
        keys = [(key, text) for key, kind, text in _KEYS if kind in takes]
        keys += [("s", "skip"), ("q", "quit")]
        bar = Text("  ").join(Text(f"[{key}]", "bold").append(f" {text}", "not bold") for key, text in keys)
        print_lines(self.console, [Line(bar, "", wraps=True)])

    def _decide(self, card: Card) -> bool | None:
        """Wait for a key, and do it. None: the call must be shown again."""
        takes = self.desk.takes(card)
        kinds = {key: kind for key, kind, _ in _KEYS if kind in takes}
        while True:
            key = self._key(card)
            if key is None:
                return None
            if key == "q":
                return False
            if key == "s":
                self.done["skipped"] += 1
                return True
            if key not in kinds:
                self._tell(f"{exact(key).plain} is not one of these keys. Nothing was sent.")
            elif (is_over := self._do(card, kinds[key])) is not False:
                return is_over

    def _key(self, card: Card) -> str | None:
        """Return the next key; None as soon as another person or the clock changed the call."""
        store = self.desk.store
        rev = store.head(card.loop_id).rev

        def has_changed() -> bool:
            nonlocal rev
            now = store.head(card.loop_id).rev
            if now == rev and (card.expires_at is None or card.expires_at > read_time(store)):
                return False
            rev, fresh = now, self.desk.card(card.loop_id, card.path)
            return not fresh.waits or _state(fresh) != _state(card)

        return ask_key(partial(self._bar, card), has_changed)

    def _do(self, card: Card, kind: str) -> bool | None:
        """Ask what a decision needs, and send it. False: it was not sent. None: the call must be shown again."""
        try:
            decision = self._edit(card) if kind == "edit" else self._ask_for(card, kind)
        except EOFError:
            self.console.print()
            decision = None
        if decision is None:
            self._tell("Nothing was sent.")
            return False
        return self._send(card, evolve(decision, digest=_state(card)[0]))

    def _ask_for(self, card: Card, kind: str) -> Decision | None:
        """Ask what a decision needs; None if the person does not confirm."""
        by = self.desk.me.name
        match kind:
            case "deny":
                return Deny(self._ask("Reason, which the model reads (Ctrl-D: back)") or "no reason given", by=by)
            case "answer":
                text = self._ask("Result for the model; the call does not run (Ctrl-D: back)")
                return Answer(text, is_error=self._confirms("Is this result an error?"), by=by)
            case "rerun":
                self._tell("If the first run had effects, this has them twice.")
                return Rerun(by=by) if self._confirms(f"Run {exact(card.name).plain} a second time?") else None
        return Approve(by=by)

    def _edit(self, card: Card) -> Decision | None:
        """Let the person edit the input, show what changed, and ask. What was typed is kept for the next time."""
        text = self.typed or json.dumps(card.input_given, ensure_ascii=False, indent=2) + "\n"
        if (typed := click.edit(text, extension=".json")) is None:
            return None
        self.typed = typed
        try:
            edited = object_of(typed)
        except ValueError as error:
            self._tell(f"{error}. Press e to edit what you typed.")
            return None
        if not (changes := changed_fields(card.input_given, edited)):
            self._tell("Nothing is changed.")
            return None
        self.console.print(Text("Your changes:", "bold"))
        print_lines(self.console, change_lines(changes))
        return Approve(edited, by=self.desk.me.name) if self._confirms("Approve with your changes?") else None

    def _ask(self, question: str) -> str:
        return self.console.input(Text(f"{question}: ", "bold"))

    def _confirms(self, question: str) -> bool:
        drop_early_keys()
        return self._ask(f"{question} y or n").strip().lower() == "y"

    def _send(self, card: Card, decision: Decision) -> bool | None:
        try:
            came = self.desk.decide(card, decision)
        except InvalidEdit as error:
            self._tell(f"Not sent: {error}. Press e to edit what you typed.")
            return False
        except KeyboardInterrupt:
            stands = what_stands(self.desk.card(card.loop_id, card.path)) or "it waits"
            raise Interrupted(f"While the decision was sent. Now: {stands}. {self._figures()}") from None
        self._tell(came.text)
        if came.kind == "refused":
            return None
        self.done["decided" if came.kind == "sent" else "decided by others"] += 1
        return True

    def _tell(self, text: str) -> None:
        print_lines(self.console, [Line(exact(text, "bold"), "→ ", wraps=True)])


def _state(card: Card) -> tuple[str, int]:
    """Return by what a call differs from an earlier look at it."""
    return ("", 0) if card.call is None else (card.call.digest, len(card.call.approvals))
