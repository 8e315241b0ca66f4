"""An assistant for your terminal. It asks before it writes a file or runs a command, and continues after a restart.

python docs/examples/assistant.py            # it needs ANTHROPIC_API_KEY, and works in the current folder
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from anthropic import Anthropic

import toolloop
from toolloop import Budget, Grant, SqliteStore, ToolLoopHandle, Yielded, events, tool
from toolloop.compaction import MaskResults, Summarize
from toolloop.terminations import BudgetExceeded, Unfinished

TOKENS = int(os.environ.get("ASSISTANT_TOKENS", "1000000"))
PARAMS = {"model": "claude-opus-5-5", "max_tokens": 8192, "system": "You help at a terminal. Be brief."}
KEYS = {"approval": "[y]es  [n]o  [e]dit  [a]lways", "uncertain": "[r]un again  [n]o"}


def inside(path: str) -> Path:
    """Return a path in the current folder."""
    if not Path(path).resolve().is_relative_to(Path.cwd()):
        raise toolloop.ToolError(f"{path} is outside the folder {Path.cwd()}")
    return Path(path)


@tool(effect="pure")
def ls(path: str = ".") -> list[str]:
    """List a folder. The names of folders end with a slash."""
    return sorted(each.name + "/" * each.is_dir() for each in inside(path).iterdir())


@tool(effect="pure")
def read(path: str) -> str:
    """Read a text file."""
    return inside(path).read_text("utf-8")


@tool(needs_approval=True)
def write(path: str, text: str) -> str:
    """Write a text file, or replace it."""
    return f"wrote {inside(path).write_text(text, 'utf-8')} characters"


@tool(needs_approval=True)
def shell(command: str) -> str:
    """Run a command in the shell, for at most five minutes. The end of a long output is kept."""
    options: dict[str, Any] = {"capture_output": True, "stdin": subprocess.DEVNULL, "errors": "replace", "timeout": 300}
    ran = subprocess.run(command, shell=True, check=False, **options)  # noqa: S602 - a person approves it
    return f"exit code {ran.returncode}\n{(ran.stdout + ran.stderr)[-20_000:]}"


def visible(text: object) -> str:
    """Return a text that hides nothing and moves no cursor, for the model may write anything."""
    return "".join(each if each.isprintable() or each == "\n" else ascii(each)[1:-1] for each in str(text))


def show(event: events.WatchEvent) -> None:
    """Print what happens, while it happens."""
    match event:
        case events.TextDelta(text=text):
            print(visible(text), end="", flush=True)
        case events.CallStarted(name=name):
            print(f"\n[{name} runs]", flush=True)
        case events.CallFinished(name=name, outcome=outcome, plain_text=text):
            print(f"[{visible(name)}: {outcome}] {visible(text[:200])}")
        case events.Compacted(before=before, after=after, problem=None):
            print(f"[the history was compacted from {before} to {after} tokens]")


def ask(turn: Yielded) -> None:
    """Ask about each call that waits, until it is decided."""
    for call in turn.pending:
        shown = (f"{name}: {visible(value)}" for name, value in call.effective_input.items())
        print(f"\n{call.name} waits for you ({call.why}).", *shown, sep="\n  ")
        while any(each.id == call.id for each in turn.pending):
            try:
                match input(f"{KEYS[call.why or 'approval']} > ").strip().lower():
                    case "y":
                        turn.approve(call, by="you")
                    case "n":
                        turn.deny(call, input("Why not? ") or "no reason given", by="you")
                    case "e":
                        typed = {name: input(f"  {name}, or Enter to keep it: ") for name in call.input}
                        turn.approve(call, call.input | {name: new for name, new in typed.items() if new}, by="you")
                    case "a":  # what people allow is a command, or a path: the first field
                        field = next(iter(call.input))
                        pattern = input(f"  Which {field}, with * for any part? Enter for exactly this call: ")
                        turn.approve(call, by="you", remember=Grant(match={field: pattern}) if pattern else Grant())
                    case "r":
                        turn.rerun(call, by="you")
                    case _:
                        print("Press one of these keys, then Enter.")
            except (toolloop.errors.CallerError, ValueError) as problem:  # nothing was decided
                print(problem)


def main() -> None:
    """Talk until the person says nothing more. What a restart interrupted comes first."""
    client = Anthropic()
    compaction = MaskResults(keep_rounds=3, at_tokens=50_000), Summarize(client, keep_last=10, at_tokens=100_000)
    config = toolloop.LoopConfig(max_iterations=100, budget=Budget(total_tokens=TOKENS), compaction=compaction)
    given: dict[str, Any] = {"tools": [ls, read, write, shell], "params": PARAMS, "config": config}
    with ToolLoopHandle.open(SqliteStore("assistant.db"), "assistant", client, **given) as handle:
        goes_on = bool(handle.messages) and isinstance(handle.into_result().termination, Unfinished)
        while (text := "" if goes_on else input("\nyou> ")) or goes_on:
            if text:
                handle.follow_up(text)
            with handle.stream(ask=ask) as stream:
                for event in stream:
                    show(event)
            goes_on = False
            match stream.turn:
                case toolloop.Completed(termination=BudgetExceeded(spent=spent)):
                    if goes_on := input(f"\nThe budget is used up: {spent} tokens. Go on? [y/n] > ") == "y":
                        handle.extend(budget=Budget(total_tokens=int(spent) + TOKENS))
                case toolloop.Error(error=error):
                    if goes_on := input(f"\nThe request failed: {error} Try again? [y/n] > ") == "y":
                        handle.retry()


if __name__ == "__main__":
    with suppress(EOFError, KeyboardInterrupt):
        main()
