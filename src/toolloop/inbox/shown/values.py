"""An input as a flat list of rows, so that a page shows all of it and two inputs that differ never look the same.

The rows are made from the JSON text. So numbers are as the text has them, and keys keep their order. Nothing is cut: an
input above the limits has no rows, and no page may offer to approve it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from attrs import evolve, frozen

from toolloop.inbox.shown.characters import (
    CLOSE,
    OPEN,
    Odd,
    Piece,
    ShownText,
    chip,
    end_chip,
    legend,
    quoted,
    shown_line,
    shown_text,
)
from toolloop.inbox.shown.diffs import MINUS, DiffLine, diff_lines
from toolloop.inbox.shown.schemas import schema_parts
from toolloop.inbox.shown.words import count
from toolloop.machine.values.jsontext import JSON, encode

__all__ = ["LONGEST", "MOST_LINES", "MOST_MARKS", "MOST_VALUES", "Row", "ShownInput", "shown_input", "shown_text"]

LONGEST = 2_000_000  # bytes of keys, texts and literals in UTF-8
MOST_LINES = 20_000
MOST_VALUES = 20_000
MOST_MARKS = 150_000  # chips, tabs and other elements inside lines; each costs a browser time
_SHOWN = 4 * LONGEST  # characters on the page: paths in full and chips are longer than the input itself
_NAMED = 60  # characters for a name in a legend
_SHORT = 40  # characters of a text beside its name
_WRAPPED = 100  # characters that may fit into one row of a wide window
_NARROW = 24  # characters of a name beside its value
FULL_PATH = 12  # the depth from which a path is written in full
_BARE = re.compile(rf'[^\s."\[\]\\{OPEN}{CLOSE}]+')
_OTHERS = frozenset({"true", "false", "null", "none", "undefined", ""})


@frozen
class Row:
    """One row: a name with a value, or the name of a group whose values follow it at a greater depth.

    Attributes:
        kind: `literal`, `short`, `text`, `prose`, `list`, `outline` or `diff`.
        depth: 0 for the arguments of the call; the rows of an outline follow it at greater depths.
        name: the key, or the path of keys and indices; from depth 12 on, the path from the argument.
        lines: the lines of a text, the values of a list, or the one value.
        size: the size in words; empty where the value stands beside its name.
        diff: the lines of a diff.

    """

    kind: str
    depth: int
    name: ShownText
    lines: Sequence[ShownText] = ()
    size: str = ""
    diff: Sequence[DiffLine] = ()

    @property
    def texts(self) -> tuple[ShownText, ...]:
        """All texts of the row."""
        return (self.name, *self.lines, *(line.shown for line in self.diff))

    @property
    def pieces(self) -> Iterator[Piece]:
        """The pieces of all texts."""
        return (piece for text in self.texts for piece in text.pieces)

    @property
    def odd(self) -> tuple[Odd, ...]:
        """The legend of odd characters in the name and the value."""
        return legend(self.texts)

    @property
    def is_soft(self) -> bool:
        """Whether there are framed characters."""
        return any(piece.kind == "soft" for piece in self.pieces)

    @property
    def is_wide(self) -> bool:
        """Whether the name takes a line of its own."""
        width = sum(len(piece.text) for piece in self.name.pieces)
        is_long = self.depth == 0 and (self.kind == "outline" or width > _NARROW)
        return is_long or self.kind in ("text", "prose", "diff")


@frozen
class Size:
    """How large a value is.

    Attributes:
        values: how many values there are: numbers, texts, literals, and empty lists and objects.
        lines: how many lines the texts of several lines have together.
        characters: how many characters the values have.
        bytes: how many bytes keys, texts and literals have in UTF-8.

    """

    values: int = 0
    lines: int = 0
    characters: int = 0
    bytes: int = 0

    @property
    def above(self) -> str:
        """The limit that it is above, in words; empty if it is above none."""
        limits = (
            (self.bytes > LONGEST, f"{LONGEST:,} bytes"),
            (self.lines > MOST_LINES, f"{MOST_LINES:,} lines"),
            (self.values > MOST_VALUES, f"{MOST_VALUES:,} values"),
        )
        return next((limit for is_above, limit in limits if is_above), "")


@frozen
class ShownInput:
    """An input as it is shown.

    Attributes:
        rows: the rows, in the order of the input; empty if it is too long to show whole.
        size: how large it is.
        above: the limit that it is above, in words; empty if the whole input is shown. Only then may a page offer to
            approve it.

    """

    rows: Sequence[Row]
    size: Size
    above: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the whole input is shown."""
        return not self.above

    @property
    def too_long(self) -> str:
        """What a page says instead of the values; empty if they are shown."""
        return self.above and f"Too long to show whole: more than {self.above}. It cannot be approved here."

    @cached_property
    def odd(self) -> tuple[Odd, ...]:
        """The legend of odd characters, with how many there are in the whole input."""
        return legend(text for row in self.rows for text in row.texts)

    @property
    def words(self) -> str:
        """The size in words, such as "2 values, 15 lines, 610 characters"."""
        lines = [count(self.size.lines, "line")] if self.size.lines else []
        return ", ".join((count(self.size.values, "value"), *lines, count(self.size.characters, "character")))


@frozen
class _Number:
    """A number as the JSON text has it."""

    text: str


@frozen
class _Object:
    """An object as the JSON text has it: keys in their order, also those that stand twice."""

    members: tuple[tuple[str, Any], ...]


def shown_input(
    value: JSON,
    schema: JSON = None,
    *,
    diff: Sequence[str] = (),
    path: str | None = None,
    secret: Mapping[str, str] = {},
) -> ShownInput:
    """Return how an input is shown.

    Args:
        value: the input, as its JSON text or as a dict. A dict is encoded first.
        schema: the JSON Schema of the tool. A text with `format: "markdown"` is prose.
        diff: the names of two arguments that hold a text before and after an edit. They are shown as one diff.
        path: the name of the argument that names the file of the diff.
        secret: what is shown instead of an argument, by its name.

    Raises:
        ValueError: the value is not a JSON object.

    """
    given = _parsed(value if isinstance(value, str) else encode(value))
    if above := (size := _size(given)).above:
        return ShownInput((), size, above)
    rows, marks, length = list[Row](), 0, 0
    for row in _rows(given, schema, diff, path, secret):
        rows.append(row)
        pieces = list(row.pieces)
        marks += sum(piece.kind != "" for piece in pieces)
        length += sum(len(piece.text) for piece in pieces) + _NAMED * len(row.odd)
        if marks > MOST_MARKS or length > _SHOWN:
            limit = f"{MOST_MARKS:,} marks" if marks > MOST_MARKS else f"{_SHOWN:,} characters on the page"
            return ShownInput((), size, limit)
    return ShownInput(rows, size)


def _parsed(text: str) -> _Object:
    decoder = json.JSONDecoder(
        parse_int=_Number,
        parse_float=_Number,
        parse_constant=_Number,
        object_pairs_hook=lambda pairs: _Object(tuple(pairs)),
    )
    found = decoder.decode(text)
    if not isinstance(found, _Object):
        raise ValueError(f"the input of a call is a JSON object, got {text[:40]}")  # noqa: TRY004 - not a Python type
    return found


def _children(value: Any) -> Iterable[tuple[str | int, Any]]:
    """Return the children of a list or an object, each with its index or key; none for other values."""
    if isinstance(value, list):
        return tuple(enumerate(value))
    return value.members if isinstance(value, _Object) else ()


def _literal(value: Any) -> str:
    """Return a value without children, and which is not a text, as JSON writes it."""
    if isinstance(value, _Number):
        return value.text
    return "{}" if isinstance(value, _Object) else json.dumps(value)


def _size(given: Any) -> Size:
    """Return how large a value is."""
    values = lines = characters = length = 0
    waiting: list[Any] = [given]
    while waiting:
        value = waiting.pop()
        if children := _children(value):
            length += sum(_bytes(key) for key, _ in children if isinstance(key, str))
            waiting.extend(item for _, item in children)
        elif value is not given:
            text = value if isinstance(value, str) else _literal(value)
            values, characters, length = values + 1, characters + len(text), length + _bytes(text)
            lines += text.count("\n") + (not text.endswith("\n")) if "\n" in text else 0
    return Size(values, lines, characters, length)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


# --- rows ---


def _rows(
    given: _Object, schema: JSON, diff: Sequence[str], path: str | None, secret: Mapping[str, str]
) -> Iterator[Row]:
    names = [name for name, _ in given.members]
    texts = {name: item for name, item in given.members if isinstance(item, str) and names.count(name) == 1}
    pair = diff if all(name in texts and name not in secret for name in diff) else ()
    first = min(pair, key=names.index, default="")
    for place, (name, item) in enumerate(given.members):
        if name in secret:
            yield Row("short", 0, _name((name,)), (ShownText((chip(secret[name], "secret"),)),))
        elif name not in pair:
            yield from _argument(name, item, schema)
        elif name == first:
            yield _diff(pair, texts, path if path in names else None, is_reversed=first != diff[0])
        elif names[place - 1] != first:
            yield Row("short", 0, _name((name,)), (ShownText((chip("in the diff above", "secret"),)),))


def _argument(name: str, item: Any, schema: JSON) -> Iterator[Row]:
    """Yield the rows of an argument of the call. Groups with one child are joined with it."""
    waiting: list[tuple[int, tuple[str | int, ...], int, Any]] = [(0, (name,), 0, item)]
    while waiting:
        depth, tokens, start, value = waiting.pop()
        children = tuple(_children(value))
        while len(children) == 1:  # a list of one is joined with its value, so it is never a row
            tokens, value = (*tokens, children[0][0]), children[0][1]
            children = tuple(_children(value))
        shown = _name(tokens if depth >= FULL_PATH else tokens[start:])
        if depth == 0 and _is_plain_list(value):
            items = [_item(each, prose=_is_prose(schema, (*tokens, index))) for index, each in enumerate(value)]
            yield Row("list", 0, shown, items, f"list, {count(len(items), 'value')}")
        elif children:
            yield Row("outline", depth, shown, (), count(_size(value).values, "value") if depth == 0 else "")
            waiting += [(depth + 1, (*tokens, key), len(tokens), child) for key, child in reversed(children)]
        elif isinstance(value, str):
            yield _text_row(depth, shown, value, prose=_is_prose(schema, tokens))
        else:
            yield Row("literal", depth, shown, (_item(value, prose=False),))


def _is_plain_list(value: Any) -> bool:
    """Return whether a value is a list of values of one line."""
    is_list = isinstance(value, list) and bool(value)
    return is_list and not any(_children(each) or (isinstance(each, str) and "\n" in each) for each in value)


def _item(value: Any, *, prose: bool) -> ShownText:
    """Return a value of one line."""
    if isinstance(value, str):
        return shown_line(quoted(value) if _needs_quotes(value) else value, prose=prose)
    return ShownText((Piece(_literal(value), "literal"),))


def _text_row(depth: int, name: ShownText, text: str, *, prose: bool) -> Row:
    kind, size = "prose" if prose else "text", count(len(text), "character")
    if "\n" in text:
        lines = _text_lines(text, prose=prose)
        return Row(kind, depth, name, lines, f"{count(len(lines), 'line')}, {size}")
    if len(text) <= _SHORT:
        return Row("short", depth, name, (_item(text, prose=prose),))
    size = f"1 line, {size}" + ("; wrapped here, it has no line breaks" if len(text) > _WRAPPED else "")
    if text[0] in "[{" and _is_json(text):  # in quotes it would be hard to read, and a block is never an outline
        return Row(kind, depth, name, (shown_line(text, prose=prose),), f"{size}; a text that holds JSON")
    return Row(kind, depth, name, (_item(text, prose=prose),), size)


def _text_lines(text: str, *, prose: bool) -> list[ShownText]:
    """Return the lines of a text. White space that could be missed is named by a chip."""
    if not text:
        return []
    lines = text.removesuffix("\n").split("\n")
    head, tail = len(text) - len(text.lstrip("\n")), len(lines) - len(text) + len(text.rstrip("\n"))
    return [_text_line(line, is_end=place < head or place >= tail, prose=prose) for place, line in enumerate(lines)]


def _text_line(line: str, *, is_end: bool, prose: bool) -> ShownText:
    shown, blank = shown_line(line, prose=prose), line[len(line.rstrip(" \t")) :] + "\n" * is_end
    return evolve(shown, pieces=(*shown.pieces, end_chip(blank))) if blank else shown


def _needs_quotes(text: str) -> bool:
    """Return whether a text could be read as another type, begins with a quote, or has white space at an end."""
    if text.lower() in _OTHERS or text[0] == '"' or text.strip(" \t") != text:
        return True
    try:
        float(text if text.isascii() else "-")
    except ValueError:
        return text[0] in "[{" and _is_json(text)
    return True


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _diff(pair: Sequence[str], texts: Mapping[str, str], path: str | None, *, is_reversed: bool) -> Row:
    lines = diff_lines(*(_text_lines(texts[name], prose=False) for name in pair))
    old, new = (_name((name,)).pieces for name in pair)
    name = ShownText((*new, Piece(" ← "), *old) if is_reversed else (*old, Piece(" → "), *new))
    added, removed = (sum(line.sign == sign for line in lines) for sign in ("+", MINUS))
    size = f"both whole, every line, as one diff: +{added:,} {MINUS}{removed:,}"
    return Row("diff", 0, name, (), f"{size}; the file is named in {path}" if path else size, lines)


def _name(tokens: tuple[str | int, ...]) -> ShownText:
    """Return a path such as `spec.containers[0]."a key"`."""
    parts = list[str]()
    for token in tokens:
        if isinstance(token, int):
            parts.append(f"[{token}]")
        else:
            parts.append(("." if parts else "") + (token if _BARE.fullmatch(token) else quoted(token)))
    return shown_line("".join(parts))


def _is_prose(schema: JSON, tokens: tuple[str | int, ...]) -> bool:
    """Return whether the schema says that the text at a path is prose."""
    found = [schema]
    for token in tokens:
        parts = [part for each in found for part in schema_parts(each, schema)]
        if isinstance(token, int):
            found = [part["items"] for part in parts if isinstance(part.get("items"), dict)]
        else:
            known = [part.get("properties") for part in parts]
            found = [each[token] for each in known if isinstance(each, dict) and token in each]
        if not found:
            return False
    return any(part.get("format") == "markdown" for each in found for part in schema_parts(each, schema))
