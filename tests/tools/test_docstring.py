"""Docstrings: the description, and that of each parameter."""

from __future__ import annotations

import pytest

from toolloop.tools.docstring import read_docstring


@pytest.mark.parametrize(
    ("doc", "description", "texts"),
    [
        (None, "", {}),
        ("", "", {}),
        ("One line.", "One line.", {}),
        ("One.\n\n    Two: three.\n    ", "One.\n\nTwo: three.", {}),
        (
            "One.\n\n    Args:\n        a: first\n        b (int, optional): second\n    ",
            "One.",
            {"a": "first", "b": "second"},
        ),
        (
            "One.\n\n    Arguments:\n      a:\n        first,\n        then: more\n\n      b: second",
            "One.",
            {"a": "first, then: more", "b": "second"},
        ),
        ("Args:\n    a: first\n\nRaises:\n    ValueError: never", "Raises:\n    ValueError: never", {"a": "first"}),
        ("One.\n\nArgs:\n    what this is: nobody knows\n", "One.", {}),
        ("One.\n\nArgs:", "One.", {}),
        ("The Args: of it.", "The Args: of it.", {}),
    ],
)
def test_the_parameter_section_is_taken_out(doc: str | None, description: str, texts: dict[str, str]) -> None:
    assert read_docstring(doc) == (description, texts)
