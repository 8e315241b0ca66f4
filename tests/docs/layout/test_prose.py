"""The house style of the prose: which phrases it finds, and where."""

from __future__ import annotations

from pathlib import Path

from scripts.prose import of_module, of_page

PAGE = """# A page

This is
no error, and `is no error` is code. There is no error here, and there
are no others.

```python
# whoever reads this
```

- A list item. <!-- prose: ok -->
- Whoever <!-- prose: ok -->
"""  # prose: ok
MODULE = '''
def whoever():
    """Ask

    whoever is there."""
    raise ValueError("x is no call")


def test_nobody_answers():
    is_known = {"whoever": "x is no call"}  # prose: ok


async def test_nobody_waits():
    return """whoever
    comes"""  # prose: ok
'''  # prose: ok


def test_a_phrase_is_found_in_prose_and_not_in_code(tmp_path: Path) -> None:
    """Also over the end of a line; a line can be excused."""
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert [(line, finding.partition(":")[0]) for line, finding in of_page(page)] == [(3, "'is no error'")]


def test_a_long_sentence_is_found(tmp_path: Path) -> None:
    """A list item counts as a sentence."""
    page = tmp_path / "page.md"
    page.write_text("Short.\n\n" + "word " * 40 + "\n" + "- item\n" * 40)
    assert [(line, finding.partition(":")[0]) for line, finding in of_page(page)] == [(3, "a sentence of 40 words")]


def test_docstrings_texts_and_names_of_tests_are_read(tmp_path: Path) -> None:
    """Other names, single words and comments are not; a string can be excused."""
    module = tmp_path / "module.py"
    module.write_text(MODULE)
    assert sorted(line for line, _ in of_module(module)) == [5, 6, 9, 13]
