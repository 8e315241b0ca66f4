"""The texts for the model that stand for what a tool gave back. A response adapter may say each in its own words."""

from __future__ import annotations

from toolloop.tools.responses.jsonable import Unsendable
from toolloop.tools.responses.raised import Content, describe_failure


class Wording:
    """What the model is told where a value cannot be shown as it is. Subclass it to say it otherwise.

    Attributes:
        empty_text: for None and `EmptyResponse`.

    """

    empty_text: str = "ok"

    def name_file(self, name: str | None, mime_type: str, size: int, why: str) -> str:
        """The text for a file that is not shown.

        Args:
            name: its name, or None for mere bytes.
            mime_type: what it is.
            size: in bytes.
            why: a sentence without its full stop, such as "it is empty".

        """
        which = "A file" if name is None else f"The file {name!r}"
        return f"{which} ({mime_type}, {size:,} bytes) is not shown: {why}."

    def cut_note(self, left_out: int, whole: int) -> str:
        """The text at the end of a text that was cut.

        Args:
            left_out: how many characters are left out.
            whole: how many there were.

        """
        return f"\n[Cut: {left_out:,} of {whole:,} characters are left out.]"

    def describe(self, error: BaseException) -> Content:
        """The content of an error result: for an exception that a tool raised, or a value that cannot be sent."""
        if isinstance(error, Unsendable):
            return f"The tool ran, but what it returned cannot be sent: {error}"
        return describe_failure(error)
