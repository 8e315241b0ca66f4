"""The command `toolloop`: show stored loops and decide their calls in a terminal.

Not here: rules of its own; every decision goes through `toolloop.Inbox`.
"""

import sys
from importlib.metadata import version
from io import TextIOWrapper

__all__ = ["main"]


def main() -> None:
    """Run the command, and exit with its code."""
    if sys.argv[1:] == ["--version"]:  # works without the extra, too
        print(f"toolloop, version {version('toolloop')}")  # noqa: T201 - as the command prints it
        return
    try:
        from toolloop._cli.run import run  # noqa: PLC0415 - click and rich are an extra
    except ModuleNotFoundError as missing:
        if missing.name not in {"click", "rich"}:
            raise
        sys.exit(f"toolloop: the command needs the extra 'cli' ({missing}): pip install 'toolloop[cli]'")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # the encoding may not support all characters
    sys.exit(run(sys.argv[1:]))
