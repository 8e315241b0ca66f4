"""What a docstring says about a function and its parameters (Google style)."""

from __future__ import annotations

import inspect
import re

_SECTION = re.compile(r"(Args|Arguments|Parameters):\s*")
_ENTRY = re.compile(r"(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


def read_docstring(doc: str | None) -> tuple[str, dict[str, str]]:
    """The description (the docstring without its parameter section) and the description of each parameter."""
    lines = inspect.cleandoc(doc or "").splitlines()
    start = next((index for index, line in enumerate(lines) if _SECTION.fullmatch(line)), None)
    if start is None:
        return "\n".join(lines).strip(), {}
    # The section ends where a line is as far to the left as its heading.
    end = next((i for i in range(start + 1, len(lines)) if lines[i] and not lines[i][0].isspace()), len(lines))
    before, after = "\n".join(lines[:start]).strip(), "\n".join(lines[end:]).strip()
    return "\n\n".join(part for part in (before, after) if part), _entries(lines[start + 1 : end])


def _entries(lines: list[str]) -> dict[str, str]:
    """`name (type): text`, with further lines indented deeper."""
    found: dict[str, str] = {}
    lines = inspect.cleandoc("\n" + "\n".join(lines)).splitlines()
    name = None
    for line in lines:
        entry = _ENTRY.fullmatch(line)
        if entry and not line[0].isspace():
            name = entry[1]
            found[name] = entry[2].strip()
        elif name is not None:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found
