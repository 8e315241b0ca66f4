"""The commands for an auditor: compare the lists of a store with the journals; export a trail, and verify it."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import click

from toolloop._cli.arguments import as_loop, complete_loop, json_option, loop_argument
from toolloop._cli.group import command, toolloop
from toolloop._cli.screen.progress import progress
from toolloop._cli.screen.tables import print_json
from toolloop._cli.screen.texts import exact
from toolloop.errors import LoopNotFound, StaleRevision, UnreadableSnapshot
from toolloop.inbox.auditing import audit as compare, recount
from toolloop.inbox.export.verifying import verify_trail
from toolloop.inbox.export.writing import export_trail
from toolloop.inbox.shown.words import count
from toolloop.stores.optional import NO_LIMIT
from toolloop.stores.protocol import Store


@command()
@click.argument("loop", required=False, shell_complete=complete_loop, callback=as_loop)
@click.option("--recount", "is_recount", is_flag=True, help="Before, count the statistics again from the journals.")
@json_option
def audit(store: Store, loop: str | None, *, is_recount: bool, as_json: bool) -> None:
    """Compare what the store lists of a loop, or of all loops, with the journals. Exits with 1 if anything differs."""
    loops = [row.loop_id for row in store.list(limit=NO_LIMIT)] if loop is None else [loop]
    found: dict[str, tuple[str, ...]] = {}
    gone = () if loop else (LoopNotFound,)  # one that was deleted meanwhile
    with progress("Reading journals", len(loops)) as advance:
        for loop_id in loops:
            with suppress(*gone):
                if is_recount:
                    with suppress(StaleRevision, UnreadableSnapshot):  # the comparison says what is wrong
                        recount(store, loop_id)
                if differences := compare(store, loop_id):
                    found[loop_id] = differences
            advance()
    if as_json:
        print_json({"read": len(loops), "differences": found})
    else:
        for loop_id, differences in found.items():
            for difference in differences:
                click.echo(f"{exact(loop_id).plain}: {exact(difference).plain}")
        click.echo(f"Read {count(len(loops), 'loop')}. Different: {len(found)}")
    if found:
        raise click.exceptions.Exit(1)


_KEY = click.Path(exists=True, dir_okay=False, path_type=Path)


@command()
@loop_argument
@click.option("--key", type=_KEY, help="A file with a private Ed25519 key as PEM, which signs the trail.")
def export(store: Store, loop: str, key: Path | None) -> None:
    """Print the audit trail of a loop as lines of JSON, for an auditor, who verifies them with `verify`."""
    text = export_trail(store, loop, key=None if key is None else key.read_bytes())
    click.echo(text.encode(), nl=False)


@toolloop.command()
@click.argument("file", type=click.File("rb"))
@click.option("--public-key", type=_KEY, help="A file with the public Ed25519 key of the signature, as PEM.")
@json_option
def verify(file: BinaryIO, public_key: Path | None, *, as_json: bool) -> None:
    """Verify a FILE that `export` printed: name the first line that does not fit. Exits with 1 if there is one."""
    data = file.read()
    problem = verify_trail(data, public_key=None if public_key is None else public_key.read_bytes())
    if as_json:
        print_json({"problem": problem})
    elif problem is not None:
        click.echo(exact(problem).plain)
    else:
        first, *entries, _ = map(json.loads, data.splitlines())
        signed = "The signature is of this key." if public_key else "No signature was verified."
        whole = f"All lines fit: {len(entries):,} of the trail of {first['loop_id']}, exported {first['exported']}."
        click.echo(f"{exact(whole).plain} {signed}")
    if problem is not None:
        raise click.exceptions.Exit(1)
