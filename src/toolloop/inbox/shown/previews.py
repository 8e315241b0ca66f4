"""The first lines of a text that says why a call waits, and the lines of a preview."""

from __future__ import annotations

from collections.abc import Iterator

_LINES, _CHARACTERS = 6, 480


def first_lines(text: str) -> str:
    """Return the beginning of a text; the whole of it if it is short."""
    return "\n".join(text.split("\n")[:_LINES])[:_CHARACTERS]


def is_diff(text: str) -> bool:
    """Return whether a text is a unified diff."""
    lines = text.split("\n")
    return any(line.startswith("@@ ") for line in lines) and any(line.startswith("+++ ") for line in lines)


def unified_lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of a unified diff, each with its kind: `hunk`, `add`, `del` or empty."""
    kinds = {"@@": "hunk", "+": "add", "-": "del"}
    files = {"+++": "hunk", "---": "hunk"}
    for line in text.rstrip("\n").split("\n"):
        if line.startswith("@@"):
            files = {}  # from here on, such a line may be added or removed text
        yield next((kind for sign, kind in {**files, **kinds}.items() if line.startswith(sign)), ""), line
