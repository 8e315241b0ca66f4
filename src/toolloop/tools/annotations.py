"""Read annotations and docstrings: names, type aliases, descriptions. Does not import pydantic."""

from __future__ import annotations

import inspect
import typing
from typing import Annotated, Any

if typing.TYPE_CHECKING:
    from collections.abc import Mapping


def resolve(annotation: Any, known: dict[str, Any], local: Mapping[str, Any]) -> Any:
    """Return an annotation with every name in it resolved.

    Raises:
        NameError: a name is not defined (yet).

    """

    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation}
    return typing.get_type_hints(holder, known, dict(local), include_extras=True)["it"]


def is_alias(annotation: object) -> bool:
    """Return whether it is a type alias; `typing` and `typing_extensions` have one class each for these."""
    return type(annotation).__name__ == "TypeAliasType"


def read_annotated_text(annotation: Any) -> str | None:
    """Return the text of `Annotated[..., "text"]`."""
    if typing.get_origin(annotation) is not Annotated:
        return None
    return next((extra for extra in annotation.__metadata__ if isinstance(extra, str)), None)


def read_docstring(doc: str | None) -> tuple[str, dict[str, str]]:
    """Return the description in a docstring, and the description of each parameter or attribute.

    Google, NumPy and reST styles are supported. The description is the text before the first section, as in the SDK
    (source: anthropic-sdk 2.12, `BaseFunctionTool`). A docstring that cannot be parsed is used whole as description.
    """
    import docstring_parser  # noqa: PLC0415 - only needed when a definition is first made

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


def read_own_doc(kind: type) -> str | None:
    """Return the written docstring of a class, or None. Python generates a docstring for dataclasses without one."""
    doc: str | None = vars(kind).get("__doc__")
    return None if doc and doc.startswith(f"{kind.__name__}(") else doc
