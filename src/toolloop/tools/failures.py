"""How a call goes wrong: its input does not fit, or the tool says so itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolloop.core.errors import ToolLoopError
from toolloop.core.jsontext import well_formed as well_formed  # noqa: PLC0414 - said anew for this floor

if TYPE_CHECKING:
    from collections.abc import Sequence

# How much of a failure the model is told; the SDK's runner cuts at the same length (anthropic-sdk 2.11).
LONGEST = 4096


def shortened(text: str, longest: int = LONGEST) -> str:
    """A text of at most `longest` characters; an ellipsis shows where it was cut."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


class InvalidInput(ToolLoopError):
    """Input that does not fit a tool's parameters. The function was not called.

    Attributes:
        tool: the name of the tool.
        problems: one text per field: its path, what was expected, what was got.

    `str()` is the text for the model.
    """

    tool: str
    problems: tuple[str, ...]

    def __init__(self, tool: str, problems: Sequence[str]) -> None:
        """Keep the tool's name and the problems."""
        problems = tuple(map(well_formed, problems))
        lines = "".join(f"\n- {problem}" for problem in problems)
        super().__init__(
            shortened(f"Invalid input for {tool}; the tool did not run:{lines}"), tool=tool, problems=problems
        )


class ToolError(Exception):
    """Raised by a tool to say its own error content: the model is told exactly that.

    Args:
        content: a text, or a list of content blocks.

    """

    content: str | list[dict[str, Any]]

    def __init__(self, content: str | list[dict[str, Any]]) -> None:
        """Keep the content."""
        super().__init__(content)
        self.content = content

    def __str__(self) -> str:
        if isinstance(self.content, str):
            return self.content
        given: Any = self.content  # whatever it was declared to be
        parts = given if isinstance(given, list) else [] if given is None else [given]
        return " ".join(
            str(part.get("text", f"[{part.get('type')}]")) if isinstance(part, dict) else str(part) for part in parts
        )
