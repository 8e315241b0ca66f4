"""A small agent with file tools in a scratch folder; you approve what it changes.

`make demo` talks to the fake API of `toolloop.testing` over HTTP; with `--live` and ANTHROPIC_API_KEY to the real one.
With `--yes` it approves every call without asking. With `--web` you decide in a browser (`demo_web.py`). The agent's
tools are in `demo_agent.py`, the looks in `demo_screen.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo_agent import FILES, SYSTEM, TASK, TOOLS, scripted_model, tools_with_preview
from demo_screen import Screen
from demo_web import LOOP, drive_in_browser

from toolloop import Completed, Error, LoopContext, SqliteStore, ToolCall, ToolLoopHandle, Yielded
from toolloop.errors import CallerError
from toolloop.testing import FakeMessagesAPI

if TYPE_CHECKING:
    from anthropic import Anthropic

Decide = Callable[[Screen, Yielded, ToolCall], None]


def drive(handle: ToolLoopHandle, screen: Screen, decide: Decide) -> int:
    """The loop: take a turn, decide the calls that wait, go on. Returns the exit code."""
    while True:
        match handle.next_turn():
            case Yielded() as turn:
                screen.turn(turn)
                for call in turn.pending:
                    decide(screen, turn, call)
                    if turn.is_spent:  # the person stopped the loop
                        break
                else:
                    turn.continue_loop()
            case Completed() as done:
                screen.completed(done)
                return 0
            case Error() as failed:
                screen.failed(failed)
                return 1


def decide_at_keyboard(screen: Screen, turn: Yielded, call: ToolCall) -> None:
    """Ask until one of the keys has decided the call, or stopped the loop."""
    screen.waiting(call)
    while True:
        try:
            match screen.menu():
                case "a" | "approve":
                    turn.approve(call, by="you")
                case "d" | "deny":
                    turn.deny(call, screen.ask("Why not?") or "no reason given", by="you")
                case "e" | "edit":
                    changes = screen.ask('Fields to change, such as {"path": "new.md"}:')
                    turn.approve(call, edited(call.input, changes), by="you")
                case "n" | "answer":
                    turn.answer(call, screen.ask("What is its result?"), by="you")
                case "s" | "stop":
                    turn.stop("you stopped it")
                case other:
                    screen.complain(f"{other!r} is none of the keys." if other else "Press one of the keys.")
                    continue
        except EOFError:
            turn.stop("the input ended, and nothing is approved without --yes")
        except (CallerError, ValueError) as problem:  # the loop is as before: ask again
            screen.complain(str(problem))
            continue
        return


def approve_by_itself(screen: Screen, turn: Yielded, call: ToolCall) -> None:
    """Nobody is asked."""
    screen.waiting(call)
    turn.approve(call, by="--yes")
    screen.decided_alone()


def edited(proposed: dict[str, Any], changes: str) -> dict[str, Any]:
    """The proposed input with the fields that a person changed.

    Raises:
        ValueError: the changes are not a JSON object.

    """
    try:
        fields = json.loads(changes)
    except ValueError as error:
        raise ValueError(f"That is not JSON: {error}.") from error
    if not isinstance(fields, dict):
        raise ValueError('That is JSON, but no object. Write it like this: {"path": "other.txt"}')  # noqa: TRY004 - the person's mistake, whatever its type
    return proposed | fields


@contextlib.contextmanager
def api_client(*, live: bool) -> Generator[Anthropic]:
    """A client of the real API, or of a fake one on this machine."""
    if live:
        from anthropic import Anthropic  # noqa: PLC0415 - it takes a second, and the fake brings its own

        with Anthropic() as client:
            yield client
    else:
        with FakeMessagesAPI(scripted_model) as api:
            yield api.client()


def main() -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(description="A small agent in a scratch folder; you approve its calls.")
    parser.add_argument("--yes", action="store_true", help="approve every call without asking")
    parser.add_argument("--live", action="store_true", help="talk to the real API, with the key in ANTHROPIC_API_KEY")
    parser.add_argument("--web", action="store_true", help="decide in a browser")
    options = parser.parse_args()
    if options.live and not os.environ.get("ANTHROPIC_API_KEY"):
        parser.error("--live needs a key in ANTHROPIC_API_KEY")
    screen = Screen()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the page and the scratch folder go, too
    try:
        with tempfile.TemporaryDirectory(prefix="toolloop-demo-") as scratch:
            folder = Path(scratch, "files")
            folder.mkdir()
            for name, text in FILES.items():
                Path(folder, name).write_text(text, encoding="utf-8")
            screen.opening("the real API" if options.live else "a fake API, over HTTP", str(folder), TASK)
            params = {
                "model": "claude-opus-5-5",
                "max_tokens": 2048,
                "system": SYSTEM,
                "messages": [{"role": "user", "content": TASK}],
            }
            context = LoopContext(state=folder)
            with api_client(live=options.live) as client:
                if options.web:
                    tools = tools_with_preview(folder)

                    def open_loop(store: SqliteStore) -> ToolLoopHandle:
                        return ToolLoopHandle.open(store, LOOP, client, tools=tools, params=params, context=context)

                    handle, code = drive_in_browser(open_loop, Path(scratch, "loops.db"), screen)
                else:
                    handle = ToolLoopHandle(client, params=params, tools=TOOLS, context=context)
                    code = drive(handle, screen, approve_by_itself if options.yes else decide_at_keyboard)
                screen.closing(handle, sorted(path.name for path in folder.iterdir()))
                return code
    except KeyboardInterrupt:
        screen.interrupted()
        return 130
    except BrokenPipeError:  # nobody reads on, as in `make demo | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main())
