"""What a docstring says about a function, or about a class and its fields: Google, NumPy and reST style."""

from __future__ import annotations

import inspect


def read_docstring(doc: str | None) -> tuple[str, dict[str, str]]:
    """The description, and the description of each parameter or attribute, as far as the docstring has them.

    The description is what stands before the first section: the summary and the paragraphs after it. That is what the
    SDK tells the model too (source: anthropic-sdk 2.12, `BaseFunctionTool`). A docstring that cannot be parsed is all
    description.
    """
    import docstring_parser  # noqa: PLC0415 - only needed when a definition is first asked for

    text = inspect.cleandoc(doc or "")
    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return text, {}
    texts = {
        name.strip(): " ".join(param.description.split())
        for param in parsed.params
        if param.description
        for name in param.arg_name.split(",")  # NumPy style: `a, b : int`
    }
    between = "\n\n" if parsed.blank_after_short_description else "\n"
    description = between.join(filter(None, (parsed.short_description, parsed.long_description)))
    return description.strip(), texts


def own_doc(kind: type) -> str | None:
    """The docstring that a class was given; dataclasses and named tuples without one are given their signature."""
    doc: str | None = vars(kind).get("__doc__")
    return None if doc and doc.startswith(f"{kind.__name__}(") else doc
