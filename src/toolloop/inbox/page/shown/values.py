"""An input as a flat list of rows, so that a page shows all of it and two inputs that differ never look the same.

The rows are made from the JSON text. So numbers are as the text has them, and keys keep their order. Nothing is cut: an
input above the limits has no rows, and no page may offer to approve it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from toolloop.inbox.page.shown.characters import (
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
from toolloop.inbox.page.shown.diffs import MINUS, DiffLine, diff_lines
from toolloop.machine.values.jsontext import JSON, encode

__all__ = ["LONGEST", "MOST_LINES", "MOST_VALUES", "Row", "ShownInput", "shown_input", "shown_text"]

LONGEST = 2_000_000  # bytes of keys, texts and literals in UTF-8
MOST_LINES = 20_000
MOST_VALUES = 20_000
_SHOWN = 4 * LONGEST  # characters on the page: paths in full and chips are longer than the input itself
_NAMED = 60  # characters for a name in a legend
_SHORT = 40  # characters of a text beside its name
_WRAPPED = 100  # characters that may fit into one row of a wide window
_NARROW = 24  # characters of a name beside its value
FULL_PATH = 12  # the depth from which a path is written in full
_TOO_LONG = "Too long to show whole. It cannot be approved here."
_BARE = re.compile(rf'[^\s."\[\]\\{OPEN}{CLOSE}]+')
_OTHERS = frozenset({"true", "false", "null", "none", "undefined", ""})


@frozen
class Row:
    """One row: a name with a value, or the name of a group whose values follow it at a greater depth.

    Attributes:
        kind: `literal`, `short`, `text`, `prose`, `list`, `outline` or `diff`.
        depth: 0 for the arguments of the call; the rows of an outline follow it at greater depths.
        name: the key, or the path of keys and indices; from depth 12 on, the path from the argument.
        size: the size in words; empty where the value stands beside its name.
        lines: the lines of a text, the values of a list, or the one value.
        diff: the lines of a diff.
        odd: the legend of odd characters in the name and the value.
        is_soft: whether there are framed characters.
        is_wide: whether the name takes a line of its own.

    """

    kind: str
    depth: int
    name: ShownText
    size: str = ""
    lines: tuple[ShownText, ...] = ()
    diff: tuple[DiffLine, ...] = ()
    odd: tuple[Odd, ...] = ()
    is_soft: bool = False
    is_wide: bool = False


@frozen
class ShownInput:
    """An input as it is shown.

    Attributes:
        rows: the rows, in the order of the input; empty if it is too long to show whole.
        values: how many values there are: numbers, texts, literals, and empty lists and objects.
        lines: how many lines the texts of several lines have together.
        size: how many characters the values have.
        is_whole: whether the whole input is shown. Only then may a page offer to approve it.
        odd: the legend of odd characters, with how many there are in the whole input.

    """

    rows: tuple[Row, ...]
    values: int
    lines: int
    size: int
    is_whole: bool
    odd: tuple[Odd, ...]

    @property
    def too_long(self) -> str:
        """What a page says instead of the values; empty if they are shown."""
        return "" if self.is_whole else _TOO_LONG

    @property
    def words(self) -> str:
        """The size in words, such as "2 values, 15 lines, 610 characters"."""
        lines = [_count(self.lines, "line")] if self.lines else []
        return ", ".join((_count(self.values, "value"), *lines, _count(self.size, "character")))


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
    diff: tuple[str, str] | None = None,
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
    values, lines, size, length = _measured(given)
    if values > MOST_VALUES or lines > MOST_LINES or length > LONGEST:
        return ShownInput((), values, lines, size, is_whole=False, odd=())
    rows, odd, shown = list[Row](), Counter[str](), 0
    for row, found in _rows(given, schema, diff, path, secret):
        rows.append(row)
        odd.update(found)
        texts = (row.name, *row.lines, *(line.shown for line in row.diff))
        shown += sum(len(piece.text) for text in texts for piece in text.pieces) + _NAMED * len(row.odd)
        if shown > _SHOWN:
            return ShownInput((), values, lines, size, is_whole=False, odd=())
    return ShownInput(tuple(rows), values, lines, size, is_whole=True, odd=legend(odd))


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


def _measured(given: Any) -> tuple[int, int, int, int]:
    """Return how many values, lines, characters and bytes there are."""
    values = lines = size = length = 0
    waiting: list[Any] = [given]
    while waiting:
        value = waiting.pop()
        if children := _children(value):
            length += sum(_bytes(key) for key, _ in children if isinstance(key, str))
            waiting.extend(item for _, item in children)
        elif value is not given:
            text = value if isinstance(value, str) else _literal(value)
            values, size, length = values + 1, size + len(text), length + _bytes(text)
            lines += _line_count(text) if "\n" in text else 0
    return values, lines, size, length


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _line_count(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# --- rows ---

_Found = tuple[Row, Counter[str]]


def _rows(
    given: _Object, schema: JSON, diff: tuple[str, str] | None, path: str | None, secret: Mapping[str, str]
) -> Iterator[_Found]:
    names = [name for name, _ in given.members]
    texts = {name: item for name, item in given.members if isinstance(item, str) and names.count(name) == 1}
    pair = [name for name in diff or () if name in texts and name not in secret]
    if diff is None or len(pair) < len(diff):
        pair = []
    first = min(pair, key=names.index, default="")
    for place, (name, item) in enumerate(given.members):
        if name in secret:
            yield _row("short", 0, _name((name,)), (ShownText((chip(secret[name], "secret"),)),))
        elif name not in pair:
            yield from _argument(name, item, schema)
        elif name == first:
            yield _diff(pair, texts, path if path in names else None, is_reversed=first != pair[0])
        elif names[place - 1] != first:
            yield _row("short", 0, _name((name,)), (ShownText((chip("in the diff above", "secret"),)),))


def _row(
    kind: str, depth: int, name: ShownText, lines: Iterable[ShownText] = (), size: str = "", **more: Any
) -> _Found:
    lines, width = tuple(lines), sum(len(piece.text) for piece in name.pieces)
    odd, is_soft = Counter[str](), False
    for shown in (name, *lines, *(line.shown for line in more.get("diff", ()))):
        odd.update(shown.odd)
        is_soft = is_soft or any(piece.kind == "soft" for piece in shown.pieces)
    is_wide = kind in ("text", "prose", "diff") or (depth == 0 and (kind == "outline" or width > _NARROW))
    return Row(kind, depth, name, size, lines, odd=legend(odd), is_soft=is_soft, is_wide=is_wide, **more), odd


def _argument(name: str, item: Any, schema: JSON) -> Iterator[_Found]:
    """Yield the rows of an argument of the call. Groups with one child are joined with it."""
    waiting: list[tuple[int, tuple[str | int, ...], int, Any]] = [(0, (name,), 0, item)]
    while waiting:
        depth, tokens, start, value = waiting.pop()
        is_list, children = depth == 0 and _is_plain_list(value), tuple(_children(value))
        while not is_list and len(children) == 1:
            tokens, value = (*tokens, children[0][0]), children[0][1]
            is_list, children = depth == 0 and _is_plain_list(value), tuple(_children(value))
        shown = _name(tokens if depth >= FULL_PATH else tokens[start:])
        if is_list:
            items = [_item(each, prose=_is_prose(schema, (*tokens, index))) for index, each in enumerate(value)]
            yield _row("list", 0, shown, items, f"list, {_count(len(items), 'value')}")
        elif children:
            yield _row("outline", depth, shown, (), _count(_measured(value)[0], "value") if depth == 0 else "")
            waiting += [(depth + 1, (*tokens, key), len(tokens), child) for key, child in reversed(children)]
        elif isinstance(value, str):
            yield _text_row(depth, shown, value, prose=_is_prose(schema, tokens))
        else:
            yield _row("literal", depth, shown, (_item(value, prose=False),))


def _is_plain_list(value: Any) -> bool:
    """Return whether a value is a list of two or more values of one line. A list of one is joined with its value."""
    if not isinstance(value, list) or len(value) <= 1:
        return False
    return not any(_children(each) or (isinstance(each, str) and "\n" in each) for each in value)


def _item(value: Any, *, prose: bool) -> ShownText:
    """Return a value of one line."""
    if isinstance(value, str):
        return shown_line(quoted(value) if _needs_quotes(value) else value, prose=prose)
    return ShownText((Piece(_literal(value), "literal"),))


def _text_row(depth: int, name: ShownText, text: str, *, prose: bool) -> _Found:
    kind = "prose" if prose else "text"
    if "\n" in text:
        lines = _text_lines(text, prose=prose)
        return _row(kind, depth, name, lines, f"{_count(len(lines), 'line')}, {_count(len(text), 'character')}")
    if len(text) <= _SHORT:
        return _row("short", depth, name, (_item(text, prose=prose),))
    size = f"1 line, {_count(len(text), 'character')}"
    if len(text) > _WRAPPED:
        size += "; wrapped here, it has no line breaks"
    if text[0] in "[{" and _is_json(text):  # in quotes it would be hard to read, and a block is never an outline
        return _row(kind, depth, name, (shown_line(text, prose=prose),), f"{size}; a text that holds JSON")
    return _row(kind, depth, name, (_item(text, prose=prose),), size)


def _text_lines(text: str, *, prose: bool) -> list[ShownText]:
    """Return the lines of a text. White space that could be missed is named by a chip."""
    if not text:
        return []
    lines = text.removesuffix("\n").split("\n")
    head, tail = len(text) - len(text.lstrip("\n")), len(lines) - len(text) + len(text.rstrip("\n"))
    return [_text_line(line, is_end=place < head or place >= tail, prose=prose) for place, line in enumerate(lines)]


def _text_line(line: str, *, is_end: bool, prose: bool) -> ShownText:
    shown = shown_line(line, prose=prose)
    blank = line[len(line.rstrip(" \t")) :]
    if not blank and not is_end:
        return shown
    pieces = (*shown.pieces, end_chip(blank + "\n" * is_end))
    return ShownText(pieces, shown.direction, shown.odd)


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


def _diff(pair: Sequence[str], texts: Mapping[str, str], path: str | None, *, is_reversed: bool) -> _Found:
    lines = diff_lines(*(_text_lines(texts[name], prose=False) for name in pair))
    old, new = (_name((name,)).pieces for name in pair)
    name = ShownText((*new, Piece(" ← "), *old) if is_reversed else (*old, Piece(" → "), *new))
    added, removed = (sum(line.sign == sign for line in lines) for sign in ("+", MINUS))
    size = f"both whole, every line, as one diff: +{added:,} {MINUS}{removed:,}"
    return _row("diff", 0, name, (), f"{size}; the file is named in {path}" if path else size, diff=lines)


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
        parts = [part for each in found for part in _parts(each, schema)]
        if isinstance(token, int):
            found = [part["items"] for part in parts if isinstance(part.get("items"), dict)]
        else:
            known = [part.get("properties") for part in parts]
            found = [each[token] for each in known if isinstance(each, dict) and token in each]
        if not found:
            return False
    return any(part.get("format") == "markdown" for each in found for part in _parts(each, schema))


def _parts(schema: JSON, root: JSON, left: int = 8) -> Iterator[dict[str, Any]]:
    """Yield a schema with the schemas it is made of; `left` ends a reference to itself."""
    if not isinstance(schema, dict) or not left:
        return
    yield schema
    names = str(schema.get("$ref", "")).split("/")
    if names[0] == "#" and len(names) == 3:  # noqa: PLR2004 - "#/$defs/Name"
        yield from _parts(root.get(names[1], {}).get(names[2]), root, left - 1)
    for key in ("anyOf", "oneOf", "allOf"):
        for each in schema.get(key) or ():
            yield from _parts(each, root, left - 1)
