"""Docstrings: the descriptions of the tool and of each parameter."""

from __future__ import annotations

from hypothesis import given, strategies as st

from toolloop.tools.annotations import read_docstring

NUMPY = """One.

    Two.

    Parameters
    ----------
    a : int
        first,
        more
    b, c : str
        both

    Returns
    -------
    str
        A text.
    """
REST = """One.

    Two.

    :param a: first,
        more
    :param int b: second
    :returns: a text
    """


def test_google_numpy_and_rest_docstrings_give_a_description_and_that_of_each_parameter() -> None:
    cases: list[tuple[str | None, str, dict[str, str]]] = [
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
        ("Args:\n    a: first\n\nRaises:\n    ValueError: never", "", {"a": "first"}),
        ("One.\n\nTwo.\n\nReturns:\n    A text.", "One.\n\nTwo.", {}),
        ("One.\n\nArgs:", "One.\n\nArgs:", {}),
        ("The Args: of it.", "The Args: of it.", {}),
        (NUMPY, "One.\n\nTwo.", {"a": "first, more", "b": "both", "c": "both"}),
        (REST, "One.\n\nTwo.", {"a": "first, more", "b": "second"}),
        ("One.\n\nAttributes:\n    a: first", "One.", {"a": "first"}),
        (":a lonely colon", ":a lonely colon", {}),
    ]
    for doc, description, texts in cases:
        assert read_docstring(doc) == (description, texts)


@given(st.text(st.sampled_from("a:-\n `()*") | st.characters(codec="utf-8"), max_size=60))
def test_any_text_can_be_a_docstring(doc: str) -> None:
    description, texts = read_docstring(doc)
    assert (type(description), type(texts)) == (str, dict)
