"""The command that reports a restore from a backup."""

from __future__ import annotations

import click

from toolloop._cli.arguments import Me, by_option, json_option
from toolloop._cli.group import command
from toolloop._cli.screen.tables import print_json
from toolloop.inbox.restoring import mark_restored
from toolloop.stores.protocol import Store


@command()
@by_option
@json_option
def restored(store: Store, by: Me, *, as_json: bool) -> None:
    """Report that the store was restored from a backup. Do it before any worker starts.

    Each loop that has not ended then waits for a person. Its open calls need their decisions again, its started calls
    are uncertain, and links that were sent before are no longer valid.
    """
    loops = mark_restored(store, by.name, via="command")
    if as_json:
        print_json({"loops": loops})
    else:
        click.echo(f"Done. Loops that now wait for a person: {len(loops)}")
