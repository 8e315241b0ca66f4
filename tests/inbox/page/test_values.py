# ruff: noqa: RUF001 - letters that look like others are what this is about
"""An input as rows: all of it can be read from them, and no two inputs have the same rows. No browser is needed.

`test_read_back.py` makes the same claims of a real page.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given, strategies as st

from tests.inbox.page.inputs import INPUTS, inputs, neighbours, texts
from tests.inbox.page.reader import Hidden, exact, meaning, rows_of
from tests.kit.effort import examples
from toolloop.inbox.shown.characters import ShownText, shown_text
from toolloop.inbox.shown.values import LONGEST, MOST_LINES, MOST_MARKS, MOST_VALUES, shown_input

MARKDOWN = {"properties": {"body": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Body"}]}}}
MARKDOWN["$defs"] = {"Body": {"type": "string", "format": "markdown"}}  # type: ignore[dict-item]


def text_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def line(value: Any, schema: Any = None, **facts: Any) -> str:
    """How one value looks: its pieces, with marks around framed and dotted ones."""
    (row,) = shown_input(text_of({"body": value}), schema, **facts).rows
    return marked(row.lines[0])


def marked(shown: ShownText) -> str:
    marks = {"soft": "_{}_", "gap": "·{}·", "tab": "{}", "changed": "*{}*"}
    return "".join(marks.get(piece.kind, "{}").format(piece.text) for piece in shown.pieces)


# --- exactly ---


@given(inputs(), st.sampled_from([None, MARKDOWN]))
@examples(60)
def test_the_rows_give_the_input_back(value: dict[str, Any], schema: Any) -> None:
    """Each key and value, type by type, in order."""
    assert meaning(rows_of(shown_input(text_of(value), schema))) == exact(text_of(value))


@given(texts)
@examples(100)
def test_prose_gives_the_text_back(text: str) -> None:
    assert meaning(rows_of(shown_input(text_of({"body": text}), MARKDOWN))) == exact(text_of({"body": text}))


@given(texts, texts, st.sampled_from([("a", "b"), ("b", "a")]), st.booleans())
@examples(100)
def test_a_diff_gives_both_texts_back(old: str, new: str, pair: tuple[str, str], apart: bool) -> None:
    """All lines of both, also if the new text comes first or another argument stands between them."""
    value = {"a": old, **({"c": 1} if apart else {}), "b": new}
    assert meaning(rows_of(shown_input(text_of(value), diff=pair))) == exact(text_of(value))


@given(st.lists(st.sampled_from("abc"), max_size=30), st.lists(st.sampled_from("abc"), max_size=30))
@examples(50)
def test_a_diff_of_many_lines_gives_both_texts_back(old: list[str], new: list[str]) -> None:
    value = {"a": "\n".join(old), "b": "\n".join(new)}
    assert meaning(rows_of(shown_input(text_of(value), diff=("a", "b")))) == exact(text_of(value))


@pytest.mark.parametrize("value", INPUTS, ids=lambda value: next(iter(value)))
def test_neighbours_have_other_rows(value: dict[str, Any]) -> None:
    """Inputs that are one edit away: type, quote, escape, space, order, key, no-break space, decomposed letters."""
    here = rows_of(shown_input(text_of(value)))
    others = [other for _, other in neighbours(value) if text_of(other) != text_of(value)]
    assert len(others) >= 20
    for other in others:
        assert rows_of(shown_input(text_of(other))) != here, other


@given(inputs(), st.randoms(use_true_random=False))
@examples(50)
def test_neighbours_of_any_input_have_other_rows(value: dict[str, Any], random: Any) -> None:
    around = [other for _, other in neighbours(value)]
    assume(around)
    other = random.choice(around)
    assume(text_of(other) != text_of(value))
    assert rows_of(shown_input(text_of(other))) != rows_of(shown_input(text_of(value)))


def test_numbers_and_keys_are_those_of_the_json_text() -> None:
    """Digits, exponents, the order of keys and a key that stands twice survive."""
    text = '{"b": 1.0, "a": 1, "c": 1e400, "d": -0.0, "e": ' + "9" * 400 + ', "a": 2}'
    shown = shown_input(text)
    assert ["".join(piece.text for piece in row.name.pieces) for row in shown.rows] == ["b", "a", "c", "d", "e", "a"]
    assert [row.lines[0].pieces[0].text for row in shown.rows] == ["1.0", "1", "1e400", "-0.0", "9" * 400, "2"]
    assert shown_input({"b": 1.0}).rows == shown_input('{"b": 1.0}').rows


def test_what_is_not_an_object_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the input of a call is a JSON object, got \[1\]"):
        shown_input("[1]")


# --- how it looks ---


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        *(
            (text, f'"{text}"')
            for text in ("true", "null", "1", "1e3", "-0", "", " a", "a ", "{}", "[]", "None", "007")
        ),
        ('"', r'"\""'),
        ('"a"', r'"\"a\""'),
        ('{"a":1}', r'"{\"a\":1}"'),
        (r"\n", r"\n"),
        (r" \n", r'" \\n"'),
        ('say "yes"', 'say "yes"'),
        ("{not json", "{not json"),
        (True, "true"),
        (None, "null"),
        ({}, "{}"),
        ([], "[]"),
    ],
)
def test_a_short_value_is_quoted_if_it_could_be_another(value: Any, shown: str) -> None:
    assert line(value) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u200bb", "a⟦U+200B⟧b"),
        ("a\u200b\u200bb", "a⟦U+200B×2⟧b"),
        ("\u202emoc.live@kcatta", "⟦U+202E⟧moc.live@kcatta"),
        ("a\u3164b\u2800", "a⟦U+3164⟧b⟦U+2800⟧"),
        ("a\rb\u2028c", "a⟦U+000D⟧b⟦U+2028⟧c"),
        ("a\tb", "a⇥b"),
        ("a\t\u0301b", "a⇥⟦U+0301⟧b"),  # a mark has no letter to join there
        ("\ud800", "⟦U+D800⟧"),
        ("\U000e0061", "⟦U+E0061⟧"),
        ("a⟦NL⟧⇥", "a⟦U+27E6⟧NL⟦U+27E7 U+21E5⟧"),
        ("a\ufe0f", "a⟦U+FE0F⟧"),
        ("a\u00a0b", "a⟦U+00A0⟧b"),
        ("cafe\u0301", "cafe⟦U+0301⟧"),
        ("\u212b", "⟦U+212B⟧"),
        ("a\u200d\u0301b", "a⟦U+200D U+0301⟧b"),  # a mark after what cannot be seen
        ("a\u00a0\u0301b", "a⟦U+00A0 U+0301⟧b"),
        ("\u1112\u1161\u0301", "\u1112⟦U+1161 U+0301⟧"),  # Hangul in parts, with a mark
        ("\U0001d68e\U0001d68c", "⟦U+1D68E U+1D68C⟧"),
        ("https://gіthub.com", "https://g⟦U+0456⟧thub.com"),
        ("dateОfBirth", "date⟦U+041E⟧fBirth"),
        ("сору", "⟦U+0441 U+043E U+0440 U+0443⟧"),
        ("/data/сору/x", "/data/⟦U+0441 U+043E U+0440 U+0443⟧/x"),
        ("rm \u2010rf", "rm· ·⟦U+2010⟧rf"),
        ("می\u200cخواهم", "می⟦U+200C⟧خواهم"),
    ],
)
def test_what_hides_or_imitates_is_a_chip(text: str, shown: str) -> None:
    assert line(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        *("Привет, мир", "/data/ana/Документы/отчёт.txt", "Ελληνικά", "日本語", "カタカナとkanji", "한국어", "ქართული"),
        *("हिन्दी में", "ภาษาไทย", "தமிழ்", "10 µs", "naïve café", "Việt Nam", "🙏🏽", "x² … — “a”", "Grüße"),
    ],
)
def test_language_reads_as_written(text: str) -> None:
    """Without a chip, in a value that is not prose."""
    assert line(text).replace("·", "") == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Vraiment\u00a0?", "Vraiment_\u00a0_?"),
        ("Il dit\u202f: oui", "Il dit_\u202f_: oui"),
        ("cafe\u0301 noir", "caf_e\u0301_ noir"),
        ("می\u200cخواهم", "م_ی\u200c_خواهم"),
        ("क\u094d\u200dष", "क_\u094d\u200d_ष"),
        ("र\u094d\u200d\u093fक", "र_\u094d\u200d\u093f_क"),
        ("a\u00a0\u0301b", "a⟦U+00A0 U+0301⟧b"),
        ("a ❤\ufe0f b", "a· ·_❤\ufe0f_· ·b"),
        ("👩\u200d👧!", "_👩\u200d👧_!"),
        ("a\u00a0", "a⟦U+00A0⟧"),  # at the edge of a value
        ("a\u200cb", "a⟦U+200C⟧b"),  # Latin needs no joiner
        ("rm\u00a0-rf x", "rm⟦U+00A0⟧-rf x"),  # in a word with one of the characters of code
        ("x/cafe\u0301/y z", "x/cafe⟦U+0301⟧/y z"),
        ("see https://gіthub.com/ now", "see https://g⟦U+0456⟧thub.com/ now"),
    ],
)
def test_prose_has_what_its_language_needs(text: str, shown: str) -> None:
    """As written, in a frame; elsewhere it is a chip."""
    assert line(text, MARKDOWN) == shown


def test_a_schema_that_is_not_valid_says_nothing() -> None:
    """Schemas of MCP servers may be wrong anywhere."""
    wrong = {"properties": {"body": {"$ref": "#/$defs/B", "anyOf": 5, "oneOf": [1]}}, "$defs": [1]}
    assert line("say", wrong) == line("say")


def test_text_from_right_to_left_stands_in_stored_order() -> None:
    """A line with both directions isolates each text of the other direction, so a number does not move past it."""

    def turns(text: str) -> list[str]:
        return [piece.kind or piece.text for piece in shown_input(text_of({"a": text})).rows[0].lines[0].pieces]

    assert turns("x שלום 1") == ["x ", "rtl", "שלום", "stop", " 1"]
    assert turns("x 1 שלום") == ["x 1 ", "rtl", "שלום", "stop"]
    assert turns("שלום 12") == ["שלום ", "number", "12", "stop"]
    assert shown_input(text_of({"a": "שלום 12"})).rows[0].lines[0].direction == "rtl"


def test_the_legend_names_and_counts_what_is_odd() -> None:
    """Below the value, and for the whole input; keys, too."""
    shown = shown_input(text_of({"a\u200b": "b\u200b\u200b", "c": ["\u202ex", "y"]}))
    assert [(odd.code, odd.name, odd.count) for odd in shown.odd] == [
        ("U+200B", "zero width space", 3),
        ("U+202E", "right-to-left override", 1),
    ]
    assert [[odd.code for odd in row.odd] for row in shown.rows] == [["U+200B"], ["U+202E"]]


def test_white_space_at_the_end_of_a_line_is_named() -> None:
    (row,) = shown_input(text_of({"a": "\nx  \n\ty \t\nz\n\n"})).rows
    assert [marked(shown) for shown in row.lines] == ["⟦NL⟧", "x·  ·⟦SP×2⟧", "⇥y ⇥⟦SP TAB⟧", "z⟦NL⟧", "⟦NL⟧"]
    assert row.size == "5 lines, 13 characters"


def test_the_kind_and_the_size_of_each_row() -> None:
    value = {
        "command": "set -e\nmake",
        "url": "x" * 41,
        "long": "word " * 25 + ".",
        "json": json.dumps({"a": list(range(20))}),
        "n": 1,
        "to": ["a", "b"],
        "one": ["a"],
        "spec": {"a": {"b": [{"c": "x"}]}, "d e": [1, 2], "f": "x\ny"},
        "body": "# Title\n",
    }
    shown = shown_input(text_of(value), MARKDOWN)
    names = ["".join(piece.text for piece in row.name.pieces) for row in shown.rows]
    assert [(row.kind, row.depth, name, row.size) for row, name in zip(shown.rows, names, strict=True)] == [
        ("text", 0, "command", "2 lines, 11 characters"),
        ("text", 0, "url", "1 line, 41 characters"),
        ("text", 0, "long", "1 line, 126 characters; wrapped here, it has no line breaks"),
        ("text", 0, "json", "1 line, 77 characters; a text that holds JSON"),
        ("literal", 0, "n", ""),
        ("list", 0, "to", "list, 2 values"),
        ("short", 0, "one[0]", ""),
        ("outline", 0, "spec", "4 values"),
        ("short", 1, "a.b[0].c", ""),
        ("outline", 1, '"d e"', ""),
        ("literal", 2, "[0]", ""),
        ("literal", 2, "[1]", ""),
        ("text", 1, "f", "2 lines, 3 characters"),
        ("prose", 0, "body", "1 line, 8 characters"),
    ]
    assert shown.words == "13 values, 5 lines, 273 characters"


def test_a_path_is_in_full_from_depth_12() -> None:
    value: Any = {"leaf": 1, "last": 2}
    for level in range(14):
        value = {f"k{level}": value, "n": level}
    rows = shown_input(text_of({"x": value})).rows
    names = {row.depth: "".join(piece.text for piece in row.name.pieces) for row in rows if row.kind == "outline"}
    assert names[11] == "k3"
    assert names[12] == "x." + ".".join(f"k{level}" for level in range(13, 1, -1))


def test_a_diff_shows_numbers_signs_and_changed_words() -> None:
    """A line stands before the line that replaces it, also where lines were added between."""
    old, new = "def f():\n    return args\n", "def f():\n    log()\n    return query\n"
    (row,) = shown_input(text_of({"old": old, "new": new}), diff=("old", "new")).rows
    assert [(each.sign, each.old, each.new, marked(each.shown)) for each in row.diff] == [
        ("", 1, 1, "def f():"),
        ("+", None, 2, "    log()"),
        ("−", 2, None, "    return *args*⟦NL⟧"),
        ("+", None, 3, "    return *query*⟦NL⟧"),
    ]
    assert row.size == "both whole, every line, as one diff: +2 −1"


def test_a_secret_is_listed_by_its_name() -> None:
    """Its value is nowhere in the rows; a text with the same words looks different."""
    hint = "hidden, 6 characters, ends in 9f"
    shown = shown_input({"token": "s3cr9f", "note": hint}, secret={"token": hint})
    assert "s3cr9f" not in repr(shown)
    assert meaning(rows_of(shown)) == [("object", ["token", "note"]), Hidden(hint), hint]


def test_names_and_ids_show_what_they_are() -> None:
    """Tool names, loop ids and metadata get the same treatment."""
    texts_ = ["deploy-01", " a", "", '"a"', "a\u200b", "a\nb", "true", "dеploy"]
    assert [marked(shown_text(text)) for text in texts_] == [
        *("deploy-01", '" a"', '""', r'"\"a\""', "a⟦U+200B⟧", "a⟦NL⟧b", "true", "d⟦U+0435⟧ploy"),
    ]


# --- limits ---


@pytest.mark.parametrize(
    ("value", "more", "limit"),
    [
        ({"t": "x" * (LONGEST - 1)}, {"t": "x" * LONGEST}, "2,000,000 bytes"),
        ({"t": "é" * (LONGEST // 2 - 1)}, {"t": "é" * (LONGEST // 2)}, "2,000,000 bytes"),
        ({"t": "\n" * MOST_LINES}, {"t": "\n" * (MOST_LINES + 1)}, "20,000 lines"),
        ({"t": [1] * MOST_VALUES}, {"t": [1] * (MOST_VALUES + 1)}, "20,000 values"),
        pytest.param(
            {"t": "a\u200b" * MOST_MARKS},
            {"t": "a\u200b" * (MOST_MARKS + 1)},
            "150,000 marks",
            marks=pytest.mark.deep,
        ),
        ({"t": ("a\t" * MOST_MARKS).strip()}, {"t": "a\t" * MOST_MARKS + "\u200b"}, "150,000 marks"),
    ],
    ids=["bytes", "bytes of other letters", "lines", "values", "chips", "tabs and a chip"],
)
def test_an_input_is_whole_up_to_each_limit(value: Any, more: Any, limit: str) -> None:
    """Above it there are no rows, and the page says which limit it is, and that nothing can be approved."""
    below = shown_input(text_of(value))
    assert (below.too_long, below.is_whole) == ("", True)
    above = shown_input(text_of(more))
    assert (above.is_whole, above.rows) == (False, ())
    assert above.too_long == f"Too long to show whole: more than {limit}. It cannot be approved here."


def test_paths_that_grow_too_long_are_not_shown() -> None:
    """Paths in full repeat themselves: a small input can need more text than a page can hold."""
    value: Any = {f"k{index}": 1 for index in range(2_000)}
    for _ in range(100):
        value = {"k" * 60: value, "n": 1}
    assert not shown_input(text_of({"x": value})).is_whole
