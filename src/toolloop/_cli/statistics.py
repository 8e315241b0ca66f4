"""The command that adds up what became of the calls, how long people took, and what the loops cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from math import inf

import click
from rich.text import Text

from toolloop._cli.arguments import json_option, metadata_option
from toolloop._cli.group import command
from toolloop._cli.screen.tables import Column, print_json, print_table
from toolloop._journal.statistics import Waits
from toolloop.inbox.inbox import Inbox
from toolloop.inbox.shown.words import duration, uncounted
from toolloop.stores.protocol import Store

_DAY = click.DateTime(["%Y-%m-%d"])


@command()
@click.option("--since", type=_DAY, help="Only from this day on, in UTC: YYYY-MM-DD.")
@metadata_option
@json_option
def stats(store: Store, since: datetime | None, metadata: dict[str, str], *, as_json: bool) -> None:
    """Show what became of the calls, how long people took, and what the loops cost."""
    found = Inbox(store).statistics(None if since is None else since.date(), metadata or None)
    if as_json:
        print_json(found.to_json())
        return
    if found.uncounted:
        click.echo(f"Without {uncounted(found.uncounted)}: `toolloop audit --recount` counts them.", err=True)
    if not (found.calls or found.days):
        click.echo("No calls and no cost.", err=True)
        return
    _print_counts("tool", "calls", found.calls)
    _print_counts("person", "decisions", found.people)
    if found.waits:
        columns = [Column("tool", "bold"), Column("waited"), Column("half within"), Column("90 % within")]
        rows = ((tool, f"{each.count:,}", _most(each, 0.5), _most(each, 0.9)) for tool, each in found.waits.items())
        _print_section(columns, rows)
    if found.days:
        days = ((day.isoformat(), str(cost)) for day, cost in found.days.items())
        _print_section([Column("day", "bold"), Column("cost")], [*days, ("all", str(found.cost))])


def _print_counts(who: str, what: str, rows: Mapping[str, Mapping[str, int]]) -> None:
    if rows:
        cells = [(name or "-", f"{sum(counts.values()):,}", _counted(counts)) for name, counts in rows.items()]
        _print_section([Column(who, "bold"), Column(what), Column("how they were settled")], cells)


def _print_section(columns: list[Column], rows: Iterable[tuple[str | Text, ...]]) -> None:
    print_table(columns, rows)
    click.echo()


def _counted(counts: Mapping[str, int]) -> str:
    words = {outcome: outcome.replace("rule_", "by rule: ").replace("_", " ") for outcome in counts}
    return ", ".join(f"{count:,} {words[outcome]}" for outcome, count in counts.items())


def _most(waits: Waits, part: float) -> str:
    seconds = waits.within(part)
    return f"more than {duration(waits.bounds[-1])}" if seconds == inf else duration(seconds)
