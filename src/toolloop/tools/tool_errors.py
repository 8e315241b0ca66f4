"""Two errors for calls: `InvalidInput` for invalid input, `ToolError` for the content of an error result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolloop._public import set_module
from toolloop.errors import ToolLoopError
from toolloop.machine.values.jsontext import JSON, encode, make_well_formed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Maximum length of an error text for the model; the SDK's runner has the same limit (anthropic-sdk 2.11).
LONGEST = 4096
_LONGEST_VALUE = 80


def shorten(text: str, longest: int = LONGEST) -> str:
    """Return a text cut to `longest` characters, with an ellipsis if it was cut."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def quote_value(value: JSON) -> str:
    """Return an input value as JSON, cut to 80 characters."""
    try:
        return shorten(encode(value), _LONGEST_VALUE)
    except (TypeError, ValueError, RecursionError):
        return type(value).__name__


def format_path(path: Iterable[str | int]) -> str:
    """Return a path in an input as text: `lines[2].qty`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{shorten(step, _LONGEST_VALUE)}" for step in path)
    return "".join(steps).removeprefix(".") or "input"


class InvalidInput(ToolLoopError):
    """The input of a call does not match the tool's parameters. The function was not called.

    Attributes:
        tool: the name of the tool.
        problems: one text per invalid field: its path, the error and the value.

    `str()` lists them, one per line. In a loop, `Texts.invalid_input` makes the text for the model.
    """

    tool: str
    problems: tuple[str, ...]

    def __init__(self, tool: str, problems: Sequence[str]) -> None:
        """Store the tool's name and the problems, each as one line."""
        problems = tuple(make_well_formed(" ".join(problem.splitlines())) for problem in problems)
        lines = "".join(f"\n- {problem}" for problem in problems)
        super().__init__(
            shorten(f"Invalid input for {tool}; the tool did not run:{lines}"), tool=tool, problems=problems
        )


@set_module("toolloop")
class ToolError(Exception):
    """Raise it in a tool to return an error result with this content.

    Args:
        content: a text, or a list of content blocks.

    """

    content: str | list[dict[str, Any]]

    def __init__(self, content: str | list[dict[str, Any]]) -> None:
        """Store the content."""
        super().__init__(content)
        self.content = content

    def __str__(self) -> str:
        return self.content if isinstance(self.content, str) else ""  # blocks may hold files
