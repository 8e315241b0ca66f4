"""What a person can read of an input on a page, and the input that it means.

`read(page, ...)` returns the rows that are really visible in a browser, by rectangles and visible text alone: no
attribute, no tag. `rows_of(shown)` returns the same rows of a `ShownInput` without a browser. `meaning(rows)` returns
the input: it knows how the page writes, and nothing of the code that writes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from toolloop.inbox.shown.values import ShownInput

if TYPE_CHECKING:
    from playwright.sync_api import Page

_SCRIPT = Path(__file__).with_name("reader.js").read_text()
FULL_PATH = 12
_LITERAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?|true|false|null|\{\}|\[\]")
_CHIP = re.compile("\u27e6([^\u27e6\u27e7]*)\u27e7")
_LABEL = re.compile(r"(SP|TAB|NL|U\+[0-9A-F]{4,6})(?:\u00d7([0-9]+))?")
_TOKEN = re.compile(r'\.?(?:\[([0-9]+)\]|"((?:[^"\\]|\\.)*)"|([^\s."\[\]\\]+))', re.DOTALL)
_SIZE = re.compile(r"(?:list, )?([0-9,]+) (values?|lines?)\b|both whole, every")
_PLAIN = {"SP": " ", "TAB": "\t", "NL": "\n"}


@frozen
class Read:
    """A row as a person reads it: how far it stands to the right, the name, the size and the lines of the value."""

    depth: int
    name: str
    size: str
    lines: tuple[str, ...]


@frozen
class Number:
    """A number, true, false or null, letter for letter."""

    text: str


@frozen
class Hidden:
    """A secret: the text that replaces it."""

    text: str


@define
class Group:
    """A list or an object: its values with their indices or keys, in order."""

    items: list[tuple[Any, Any]] = field(factory=list)


def exact(text: str) -> list[Any]:
    """The input that a JSON text holds, flat: each list, object, key and value, with numbers letter for letter."""
    return flat(json.loads(text, parse_int=Number, parse_float=Number, object_pairs_hook=Group))


def flat(value: Any) -> list[Any]:
    """A value as a flat list: nested ones cannot be compared at any depth."""
    found, waiting = list[Any](), [value]
    while waiting:
        match waiting.pop():
            case Group(items) if items and isinstance(items[0][0], int):
                assert [index for index, _ in items] == list(range(len(items)))
                found.append(("list", len(items)))
                waiting.extend(item for _, item in reversed(items))
            case Group(items) if items:
                found.append(("object", [key for key, _ in items]))
                waiting.extend(item for _, item in reversed(items))
            case list() as items if items:
                found.append(("list", len(items)))
                waiting.extend(reversed(items))
            case Group():
                found.append(Number("{}"))
            case None | bool() | list() as literal:
                found.append(Number(json.dumps(literal)))
            case other:
                found.append(other)
    return found


def rows_of(shown: ShownInput) -> list[Read]:
    """The rows of an input as a person would read them."""

    def text(shown_text: Any) -> str:
        return "".join(piece.text + (piece.source if piece.kind == "tab" else "") for piece in shown_text.pieces)

    return [
        Read(
            min(row.depth, FULL_PATH),
            text(row.name),
            row.size,
            tuple(map(text, row.lines)) or tuple((line.sign or "·") + text(line.shown) for line in row.diff),
        )
        for row in shown.rows
    ]


def meaning(rows: Iterable[Read]) -> list[Any]:
    """The input that rows mean, flat."""
    root = Group()
    groups: list[tuple[int, tuple[Any, ...], Group]] = [(-1, (), root)]
    for row in rows:
        if row.size.startswith("both whole"):
            root.items.extend(_from_diff(row))
            continue
        path = _path(row.name)
        if row.lines == ("⟦in the diff above⟧",):
            root.items.append(root.items.pop([key for key, _ in root.items].index(path[0])))
            continue
        while groups[-1][0] >= row.depth and not (row.depth == FULL_PATH and _is_under(path, groups[-1][1])):
            groups.pop()
        _, parent, group = groups[-1]
        rest = path[len(parent) :] if row.depth == FULL_PATH else path
        assert rest, row
        whole = path if row.depth == FULL_PATH else (*parent, *rest)
        for token in rest[:-1]:
            group.items.append((token, group := Group()))
        value = _value(row)
        group.items.append((rest[-1], value))
        if isinstance(value, Group) and not value.items:
            groups.append((row.depth, whole, value))
    return flat(root)


def _is_under(path: Sequence[Any], group: Sequence[Any]) -> bool:
    return len(path) > len(group) and tuple(path[: len(group)]) == tuple(group)


def _value(row: Read) -> Any:
    size = _SIZE.match(row.size)
    if size is None:
        return _one(row.lines[0]) if row.lines else Group()
    if size[2].startswith("value"):
        if not row.size.startswith("list"):
            return Group()
        assert len(row.lines) == int(size[1].replace(",", ""))
        return Group([(index, _one(line)) for index, line in enumerate(row.lines)])
    assert len(row.lines) == int(size[1].replace(",", "")), row
    if len(row.lines) == 1 and row.lines[0][:1] == '"' and _end(row.lines[0])[1] == "":
        return _unquoted(_plain(row.lines[0]))
    return _lines(row.lines)


def _one(text: str) -> Any:
    """The value of one line: a text in quotes, a literal, or a text."""
    if text.startswith('"'):
        return _unquoted(_plain(text))
    if _LITERAL.fullmatch(text):
        return Number(text)
    if (found := _CHIP.fullmatch(text)) and not _LABEL.match(found[1]):
        return Hidden(found[1])
    return _plain(text)


def _lines(lines: Sequence[str]) -> str:
    """The text of several lines: each ends with a line feed but for the last one, unless a chip says so."""
    found = []
    for number, line in enumerate(lines):
        text, end = _end(line)
        found.append(_plain(text) + "\n" * ("\n" in end or number + 1 < len(lines)))
    return "".join(found)


def _end(line: str) -> tuple[str, str]:
    """A line without the chip that names the white space at its end, and what that chip names."""
    last = max(_CHIP.finditer(line), key=re.Match.end, default=None)
    if last is None or last.end() < len(line) or "U+" in last[1]:
        return line, ""
    named = _named(last[1])
    text = line[: last.start()]
    blank = named.rstrip("\n")
    assert _plain(text).endswith(blank), line
    return text, named


def _plain(text: str) -> str:
    """A text with its chips and the signs of tabs as the characters that they stand for."""
    return _CHIP.sub(lambda chip: _named(chip[1]), text.replace("\u21e5\t", "\t"))


def _named(label: str) -> str:
    found = []
    for each in label.split(" "):
        match = _LABEL.fullmatch(each)
        assert match, label
        char = _PLAIN.get(match[1]) or chr(int(match[1].removeprefix("U+"), 16))
        found.append(char * int(match[2] or 1))
    return "".join(found)


def _unquoted(text: str) -> str:
    assert len(text) > 1, text
    assert text[-1] == '"', text
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)


def _path(name: str) -> tuple[Any, ...]:
    plain, found, place = _plain(name), [], 0
    while place < len(plain):
        match = _TOKEN.match(plain, place)
        assert match, name
        index, quoted, bare = match.groups()
        found.append(int(index) if index else bare or _unquoted(f'"{quoted}"'))
        place = match.end()
    return tuple(found)


def _from_diff(row: Read) -> list[tuple[str, str]]:
    arrow = " → " if " → " in row.name else " ← "
    names = [str(_path(name)[0]) for name in row.name.split(arrow)]
    texts = [_lines([line[1:] for line in row.lines if line[0] in signs]) for signs in ("\u2212·", "+·")]
    return list(zip(names, texts if arrow == " → " else texts[::-1], strict=True))


# --- from a page ---


@frozen
class Fragment:
    """Visible text of one box and one face, with its rectangle in the window."""

    text: str
    mono: bool
    left: float
    top: float
    right: float
    bottom: float


def fragments(page: Page, within: str = "dl.input") -> list[Fragment] | None:
    """What is really visible of an element before the control that approves; None if nothing approves."""
    found = page.evaluate(_SCRIPT, within)
    return None if found is None else [Fragment(**each) for each in found]


def read(page: Page, within: str = "dl.input") -> list[Read] | None:
    """The rows of an input, as they are really visible; None if nothing approves."""
    found = fragments(page, within)
    return None if found is None else list(_rows(found))


def _rows(found: list[Fragment]) -> Iterator[Read]:
    """Rows: a name stands at the left edge, or in an outline below the row before it; a value right of its name."""
    edge = min((each.left for each in found if each.mono), default=0.0)
    place, columns, in_outline = 0, list[float](), False
    while place < len(found):
        name = found[place]
        place += 1
        if not name.mono:
            continue  # a legend
        if name.left < edge + 1:
            columns, in_outline = [], False
        else:
            assert in_outline, name
            columns = [each for each in columns if each < name.left - 1] + [name.left]
        size = ""
        if place < len(found) and not found[place].mono and _SIZE.match(found[place].text):
            size, place = found[place].text, place + 1
        lines = list[str]()
        if match := _SIZE.match(size):
            if match[2] is None:
                while place < len(found) and found[place].mono and found[place].left > edge + 1:
                    line, place = _diff_line(found, place)
                    lines.append(line)
            elif match[2].startswith("value"):
                in_outline = in_outline or not size.startswith("list")
                if size.startswith("list"):
                    count = int(match[1].replace(",", ""))
                    lines, place = [each.text for each in found[place : place + count]], place + count
            else:
                lines, place = _text_lines(found, place, int(match[1].replace(",", "")))
        elif place < len(found) and found[place].mono and _is_value(found[place], name, edge, in_outline=in_outline):
            lines, place = [found[place].text], place + 1
        yield Read(len(columns), name.text.strip(), size.strip(), tuple(each.removesuffix("\n") for each in lines))


def _is_value(value: Fragment, name: Fragment, edge: float, *, in_outline: bool) -> bool:
    """Whether a text is the value of a name: right of it in its row, or below it and not at the edge."""
    is_beside = value.left >= name.right and abs(value.top - name.top) < 8
    return is_beside or (not in_outline and value.left > edge + 1)


def _text_lines(found: list[Fragment], place: int, count: int) -> tuple[list[str], int]:
    """The lines of a text: each has its number left of it, but for a text of one line."""
    if count == 1:
        return [found[place].text], place + 1
    lines, gutter = list[str](), found[place].right
    for number in range(1, count + 1):
        assert found[place].text == str(number), (found[place], number)
        assert abs(found[place].right - gutter) < 1
        place += 1
        line = ""
        if place < len(found) and found[place].mono and found[place].left > gutter and not (
            found[place].text == str(number + 1) and abs(found[place].right - gutter) < 1
        ):  # fmt: skip
            line, place = found[place].text, place + 1
        lines.append(line)
    return lines, place


def _diff_line(found: list[Fragment], place: int) -> tuple[str, int]:
    """A line of a diff: the numbers in both texts (a narrow page has one), a sign, and the text."""
    while found[place].text.isdigit():
        place += 1
    sign = found[place].text
    assert sign in {"+", "\u2212", "·"}, found[place]
    place += 1
    following = found[place] if place < len(found) else None
    if following is None or not following.mono or following.left < found[place - 1].right or (
        following.top > found[place - 1].bottom
    ):  # fmt: skip
        return sign, place
    return sign + following.text, place + 1
