"""The exit codes of the command: 0 done, 1 failed, 2 usage, 3 not found, 4 not allowed now, 130 interrupted."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from toolloop._cli.commands import toolloop
from toolloop._cli.group import Interrupted, StoreNotFoundError
from toolloop.errors import (
    CallerError,
    Conflict,
    InvalidEdit,
    LoopNotFound,
    ToolLoopError,
    UnknownCall,
)
from toolloop.inbox.transcript import escape_hidden

FAILED, USAGE, NOT_FOUND, CONFLICT, INTERRUPTED = 1, 2, 3, 4, 130
_CODES: tuple[tuple[type[Exception], int], ...] = (  # the first match counts
    (StoreNotFoundError, NOT_FOUND),
    (LoopNotFound, NOT_FOUND),
    (UnknownCall, NOT_FOUND),
    (InvalidEdit, USAGE),
    (CallerError, CONFLICT),
    (Conflict, CONFLICT),
    (ToolLoopError, FAILED),
    (ImportError, FAILED),
    (OSError, FAILED),
    (TypeError, USAGE),
    (ValueError, USAGE),
)


def run(arguments: Sequence[str]) -> int:
    """Run the command with these arguments, and return its exit code."""
    try:
        code = toolloop.main([*arguments], prog_name="toolloop", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _interrupted("What was stored before stands; nothing is half done.")
    except Interrupted as error:
        return _interrupted(str(error))
    except BrokenPipeError:  # the reader has closed the pipe, as in `toolloop list ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except tuple(kind for kind, _ in _CODES) as error:
        click.echo(f"toolloop: {escape_hidden(str(error))}", err=True)
        return next(code for kind, code in _CODES if isinstance(error, kind))
    return code if isinstance(code, int) else 0


def _interrupted(text: str) -> int:
    click.echo(f"\ntoolloop: interrupted. {text}", err=True)
    return INTERRUPTED
