"""The command that says what a file of rules says of a call."""

from __future__ import annotations

from typing import Any

import click
from attrs import asdict

from toolloop._cli.arguments import as_object, json_option
from toolloop._cli.group import toolloop
from toolloop._cli.screen.tables import Column, print_json, print_table
from toolloop.rules import RuleResult, Rules

_COLUMNS = (Column("rule", "bold"), Column("answer"), Column("effect"), Column("why"))
_WINS = {"deny": "a rule that denies wins", "ask": "a rule that asks wins"}


@toolloop.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--tool", help="The tool of a call. Without it, the file is only checked.")
@click.option("--input", "given", callback=as_object, default="{}", help="The input of the call, a JSON object.")
@click.option("--schema", callback=as_object, help="The JSON Schema of its input. Without it, more rules match.")
@json_option
def rules(file: str, tool: str | None, given: dict[str, Any], schema: dict[str, Any] | None, *, as_json: bool) -> None:
    """Check a FILE of approval rules, and show which of them answer for a call, and why the others do not."""
    loaded = Rules.load(file)
    results = loaded.explain(tool or "", given, schema=schema)
    deciding = next((each.do for each in results if each.decides), None)
    if as_json:
        shown = [asdict(each) for each in results] if tool else [{"rule": each.rule, "do": each.do} for each in results]
        print_json({"digest": loaded.digest, "decides": deciding if tool else None, "rules": shown})
        return
    if tool:
        print_table(_COLUMNS, ((each.rule, _answer(each), each.effect, _why(each, deciding)) for each in results))
        if deciding is None:
            click.echo("No rule matches: the tool's own needs_approval decides.")
    else:
        print_table((_COLUMNS[0], _COLUMNS[2]), ((each.rule, each.effect) for each in results))
    click.echo(f"The digest of the file is {loaded.digest}.")


def _answer(result: RuleResult) -> str:
    return "decides" if result.decides else "matches" if result.matches else "-"


def _why(result: RuleResult, deciding: str | None) -> str:
    wins = _WINS.get(deciding or "", "") if result.matches and not result.decides else ""
    return "; ".join(part for part in (wins, result.why) if part)
