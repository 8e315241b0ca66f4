"""The commands that decide one call: `approve`, `deny`, `answer` and `rerun`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click
from attrs import asdict, evolve
from rich.console import Console

from toolloop._cli.arguments import (
    Me,
    as_object,
    by_option,
    call_argument,
    is_in_terminal,
    json_option,
    loop_argument,
    text_or_input,
)
from toolloop._cli.desk import Desk, card_lines
from toolloop._cli.group import command
from toolloop._cli.screen.keys import drop_early_keys
from toolloop._cli.screen.tables import print_json
from toolloop._cli.screen.texts import Line, change_lines, exact, print_lines
from toolloop.errors import IllegalCommand
from toolloop.inbox.inbox import Inbox
from toolloop.inbox.shown.edits import changed_fields
from toolloop.machine.values.calls import Answer, Approve, Decision, Deny, Rerun
from toolloop.stores.protocol import Store


def _decision(make: Callable[..., Decision]) -> click.Command:
    """Make a command from a function that returns a decision for its options, `digest` and `by`."""

    @functools.wraps(make)
    def decide(store: Store, loop: str, call: str, *, as_json: bool, by: Me, **parts: Any) -> None:
        desk = Desk(store, by)
        decision = make(by=by.name, **parts)
        if isinstance(decision, Approve | Rerun):
            decision = _seen(desk, (loop, tuple(call.split("/"))), decision)
        standing = Inbox(store, via="command").decide(loop, {call: decision})[call]
        if as_json:
            print_json({"loop_id": loop, "status": store.head(loop).status, "standing": asdict(standing)})
        else:
            came = desk.came(desk.card(loop, tuple(call.split("/"))), standing).text
            text = f"{came[:1].upper()}{came[1:]}. The loop is now: {store.head(loop).status}"
            print_lines(Console(highlight=False), [Line(exact(text), "", wraps=True)])

    digest_option = click.option("--digest", help="Decide only if the call still has this digest.")
    wrapped: Callable[..., Any] = decide
    for part in (json_option, by_option, digest_option, call_argument, loop_argument):
        wrapped = part(wrapped)
    return command()(wrapped)


def _seen(desk: Desk, name: tuple[str, tuple[str, ...]], decision: Approve | Rerun) -> Decision:
    """Return a decision to run a call, bound to the call as the person saw it.

    Raises:
        IllegalCommand: the command cannot give this approval.
        click.UsageError: no person saw it: there is neither a terminal nor a digest.
        click.exceptions.Exit: the person does not confirm it.

    """
    card = desk.card(*name)
    if not card.waits:
        return decision  # the error of the inbox says what stands
    if why := desk.why_not_here(card):
        raise IllegalCommand(f"call {'/'.join(card.path)!r}: {why}")
    if decision.digest is not None:
        return decision
    verb = type(decision).__name__.lower()
    if not is_in_terminal():
        raise click.UsageError(
            f"without a terminal, `{verb}` needs --digest. Read the call with `toolloop show LOOP --json`, and pass "
            "the `digest` beside its input"
        )
    console = Console(highlight=False)
    print_lines(console, card_lines(card, ""))
    if isinstance(decision, Approve) and decision.input is not None:
        console.print("Your changes:")
        print_lines(console, change_lines(changed_fields(card.input_given, decision.input)))
    drop_early_keys()
    if not click.confirm(f"{verb.capitalize()} this call?"):
        raise click.exceptions.Exit(1)
    return evolve(decision, digest=None if card.call is None else card.call.digest)


@_decision
@click.option("--input", "given", callback=as_object, help="Run this JSON object instead of the proposed input.")
@click.option("--reason", help="The reason, for the audit trail.")
def approve(given: dict[str, Any] | None, reason: str | None, digest: str | None, by: str) -> Decision:
    """Let a call run. In a terminal, the call is shown whole before you confirm."""
    return Approve(given, by=by, reason=reason, digest=digest)


@_decision
@click.option("--reason", required=True, help="The reason, which the model sees.")
def deny(reason: str, digest: str | None, by: str) -> Decision:
    """Deny a call; it does not run."""
    return Deny(reason, by=by, digest=digest)


@_decision
@click.argument("text")
@click.option("--error", is_flag=True, help="The result is an error.")
def answer(text: str, *, error: bool, digest: str | None, by: str) -> Decision:
    """Answer a call with TEXT, without running it; "-" reads standard input."""
    return Answer(text_or_input(text), is_error=error, by=by, digest=digest)


@_decision
def rerun(digest: str | None, by: str) -> Decision:
    """Run a call again if its end is unknown. In a terminal, the call is shown whole before you confirm."""
    return Rerun(by=by, digest=digest)
