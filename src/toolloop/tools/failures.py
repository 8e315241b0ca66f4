"""The two errors of a call: `InvalidInput` for its input, and `ToolError` for the content of its error result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolloop.machine.errors import ToolLoopError
from toolloop.machine.jsontext import JSON, encode, well_formed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# The most characters of an error text for the model; the SDK's runner cuts at the same length (anthropic-sdk 2.11).
LONGEST = 4096
_LONGEST_VALUE = 80


def shortened(text: str, longest: int = LONGEST) -> str:
    """Return a text of at most `longest` characters; an ellipsis shows where it was cut."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def shown(value: JSON) -> str:
    """Return a value of an input as JSON, cut to 80 characters."""
    try:
        return shortened(encode(value), _LONGEST_VALUE)
    except (TypeError, ValueError, RecursionError):
        return type(value).__name__


def path_text(path: Iterable[str | int]) -> str:
    """Return a path in an input as text: `lines[2].qty`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{shortened(step, _LONGEST_VALUE)}" for step in path)
    return "".join(steps).removeprefix(".") or "input"


class InvalidInput(ToolLoopError):
    """Input that does not fit a tool's parameters. The function was not called.

    Attributes:
        tool: the name of the tool.
        problems: one text per field: its path, the error, and the value.

    `str()` lists them, one on each line. In a loop, `Texts.invalid_input` frames the same lines for the model.
    """

    tool: str
    problems: tuple[str, ...]

    def __init__(self, tool: str, problems: Sequence[str]) -> None:
        """Keep the tool's name and the problems, each as one line."""
        problems = tuple(well_formed(" ".join(problem.splitlines())) for problem in problems)
        lines = "".join(f"\n- {problem}" for problem in problems)
        super().__init__(
            shortened(f"Invalid input for {tool}; the tool did not run:{lines}"), tool=tool, problems=problems
        )


class ToolError(Exception):
    """An exception for tools: its content becomes the error result.

    Args:
        content: a text, or a list of content blocks.

    """

    content: str | list[dict[str, Any]]

    def __init__(self, content: str | list[dict[str, Any]]) -> None:
        """Keep the content."""
        super().__init__(content)
        self.content = content

    def __str__(self) -> str:
        return self.content if isinstance(self.content, str) else ""  # blocks may hold files
