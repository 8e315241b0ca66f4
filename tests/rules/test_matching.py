"""What matches: narrowly to allow, widely to ask and deny, however a text is disguised."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import reduce
from typing import Any
from urllib.parse import quote

from hypothesis import example, given, strategies as st
from pydantic import AliasChoices, BaseModel, Field

from tests.kit.each import each
from tests.kit.effort import examples
from toolloop.rules import Rules

OPEN = {"type": "object", "properties": {"text": {"type": "string"}, "number": {"type": "number"}}}


def answers(do: str, wanted: Any, value: Any, key: str = "text") -> bool:
    """Whether a rule that names this matches an input with this value."""
    (result,) = Rules([{"name": "r", "do": do, "match": {key: wanted}}]).explain("t", {key: value}, schema=OPEN)
    return result.matches


def denies(wanted: Any, value: Any) -> bool:
    return answers("deny", wanted, value)


FULL_WIDTH = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
# Each says the same to a program that decodes, normalizes or parses its input.
DISGUISES: tuple[Callable[[str, int], Any], ...] = (
    lambda text, _: text.upper(),
    lambda text, _: text.swapcase(),
    lambda text, at: text[:at] + text[at : at + 2].translate(FULL_WIDTH) + text[at + 2 :],
    lambda text, at: text[:at] + "".join(f"%{byte:02x}" for byte in text[at : at + 1].encode()) + text[at + 1 :],
    lambda text, _: quote(text, safe=""),
    lambda text, _: quote(quote(text)),
    lambda text, at: f'{text[:at]}"{text[at:]}"',
    lambda text, at: f"{text[:at]}''{text[at:]}",
    lambda text, at: f"{text[:at]}\\{text[at:]}",
    lambda text, at: f"{text[:at]}\\\n{text[at:]}",
    lambda text, at: f"{text[:at]}\u200b{text[at:]}",
    lambda text, at: f"{text[:at]}\u00ad{text[at:]}",
    lambda text, _: f"{text}\n",
    lambda text, _: text.replace("/", "//"),
    lambda text, _: text.replace("/", "/./"),
    lambda text, _: re.sub("(?<![:/])/(?!/)", "/x/../", text),
    lambda text, _: text.replace("/", "\\"),
    lambda text, at: f'{text[:at]}"{text[at : at + 1]}"{text[at + 1 :]}'.replace("/", "\\"),
    lambda text, at: text.replace(" ", "\u2800\u115f\u1160\u180e\u3164\uffa0"[at % 6]),
    lambda text, _: text.replace(" ", "\n"),
    lambda text, _: text.replace(" ", "  \t"),
)  # fmt: skip
WORD = st.text("abcxyzK\u017fßéω09-_.~:", min_size=1, max_size=6).filter(lambda word: word.strip("."))
LITERAL = st.one_of(
    WORD,
    st.lists(WORD, min_size=1, max_size=4).map(lambda words: "/" + "/".join(words)),
    st.lists(WORD, min_size=1, max_size=4).map(" ".join),
    st.tuples(WORD, WORD).map(lambda pair: f"https://{pair[0].strip('.-_~:')}x.org/{pair[1]}"),
)


# A backslash is an escape or a separator: no program reads it as both in one text.
ESCAPES, SEPARATORS = {*DISGUISES[8:10]}, {*DISGUISES[16:18]}


def is_read_by_some_program(disguises: list[Any]) -> bool:
    used = {disguise for disguise, _ in disguises}
    return not (used & ESCAPES and used & SEPARATORS)


@given(
    LITERAL,
    st.lists(st.tuples(st.sampled_from(DISGUISES), st.integers(0, 9)), max_size=3).filter(is_read_by_some_program),
)
@example("rm -rf", [(DISGUISES[9], 1), (DISGUISES[3], 4), (DISGUISES[0], 0)])
@examples(200)
def test_no_disguise_of_a_literal_passes_a_denial(literal: str, disguises: list[Any]) -> None:
    """Also several, and also inside a longer text."""
    disguised = reduce(lambda text, disguise: disguise[0](text, disguise[1]), disguises, literal)
    assert denies(literal, disguised)
    assert denies(f"**{literal}**", f"first; {disguised} and more")
    assert denies(f"**{literal}**", f"first in={disguised},x=1")
    assert answers("ask", literal, disguised)


AROUND = st.text("ab /\\'\"\n.é;$", max_size=8)


@given(AROUND, st.text(st.characters(exclude_categories=("Cs", "M"), exclude_characters="%"), max_size=12), AROUND)
@examples(100)
def test_a_text_matches_itself_and_what_contains_it(before: str, text: str, after: str) -> None:
    """Any text, of any characters. A wildcard of a denial also matches nothing."""
    assert denies(text, text)
    assert denies(f"*{text}*", before + text + after)
    assert denies("**", before)


@given(st.text(max_size=12), st.text("ab*?/", max_size=8))
@examples(150)
def test_a_rule_that_allows_matches_less_than_one_that_denies(text: str, pattern: str) -> None:
    """What is allowed by a pattern would be denied by it, too."""
    assert not answers("allow", pattern, text) or denies(pattern, text)


@each(("pattern", "text"), [
    ("**rm -rf**", "rm -rf /"),
    ("**rm -rf**", "echo a; rm -rf /"),
    ("/etc/*", "/srv/../etc/passwd"),
    ("/etc/*", "/../etc//shadow"),
    ("https://evil.org/**", "https://EVIL.org/../x"),
    ("https://evil.org/**", "https:////evil.org/a"),
    ("file:///etc/**", "file:///srv/../etc/passwd"),
    ("cat /etc/passwd", "cat /etc/x/../passwd"),
    ("cat /my files/a", "cat /x y/../my files/a"),
    ("../secret", "a/../../secret"),
    ("**/etc/shadow", "if=/x/../../etc//shadow"),
    ("if=/etc/shadow", "if=/x=1/../../etc//shadow"),
    ("host:/etc/*", "host:/x/../etc/passwd"),
    ("**:/etc:**", "/srv:/x/..//etc/:/home"),
    ("**(/etc/passwd)**", "open(/srv/../etc/./passwd)"),
    ("c:/windows/**", "'C:\\x'\\..\\Windows\\a"),
    ("**/etc/shadow**", 'cat "\\x"\\..\\etc\\shadow'),
    ("rm -rf", "rm\u2800-rf"),
    ("rm -rf", "r\u115fm\u180e-rf"),
    ("rm -rf", "rm\u3164-rf"),
    ("prod", "pr\u043ed"),
    ("prod", "pr\x00d"),
    ("prod", "pr%ffd"),
    ("prod", "%" + "25" * 20 + "70rod"),
    ("**/etc/passwd **", "cat /x/../etc/passwd ../../z"),
    ("https://evil.org/admin/**", "https://evil.org/../admin/x"),
    ("prod", " prod "),
    ("a??c", "A\n\nc"),
    ("a?c*e", "abcde"),
])  # fmt: skip
def test_a_denial_takes_what_could_be_meant(pattern: str, text: str) -> None:
    """A grant with these patterns matches few of these texts."""
    assert denies(pattern, text)


@each(("pattern", "text"), [
    ("**rm -rf**", "rm a.txt"),
    ("/etc/*", "/srv/a"),
    ("https://evil.org/**", "https://good.org/evil.org"),
    ("**password**", "I ❤️ it, naïve 日本語のテスト, 5 €, 100 %\n'quoted' & (more)"),
    ('**"**', "no quotes"),
    ("**/../**", "/a/b"),
    ("a*b*c", "acb"),
    ("?", ""),
    ("a?", "a"),
    ("ab*bc", "abc"),
    ("*?ab", "ab"),
    ("*bc*c", "abc"),
    ("*ab", "xaby"),
    ("/a*/../b", "/b"),
])  # fmt: skip
def test_a_denial_leaves_other_texts_alone(pattern: str, text: str) -> None:
    """Quotes, line ends, symbols, emoji and other scripts are plain."""
    assert not denies(pattern, text)


@each(("bounds", "inside", "outside"), [
    ({"above": 500}, [501, 500.01, 10**400], [500, 500.0, 499.99, -1]),
    ({"below": 500}, [499.99, -1], [500, 501]),
    ({"from": 500}, [500, 501], [499.99]),
    ({"to": 500}, [500, 500.0, 0], [501]),
    ({"above": 0, "to": 500}, [0.5, 500], [0, 501]),
    (500, [500], [501, 499.99]),
])  # fmt: skip
def test_numbers_have_bounds(bounds: Any, inside: list[Any], outside: list[Any]) -> None:
    """`above` and `below` are without the bound, `from` and `to` with it."""
    for do in ("allow", "ask", "deny"):
        assert [answers(do, bounds, number, "number") for number in inside] == [True] * len(inside)
        assert [answers(do, bounds, number, "number") for number in outside] == [False] * len(outside)


@each("wanted", ["a", 5, True, {"above": 5}])
@each("value", [None, [], {}, ["b"], {"x": 1}, "b", 4.5, False])
def test_another_type_is_allowed_by_none_and_denied_by_each(wanted: Any, value: Any) -> None:
    """A rule cannot know what a tool makes of it."""
    is_other = kind_of(wanted) != kind_of(value)
    assert denies(wanted, value) is is_other
    assert not answers("allow", wanted, value)


def kind_of(value: Any) -> str:
    kinds = {str: "text", bool: "bool", int: "number", float: "number"}
    return "number" if value == {"above": 5} else kinds.get(type(value), "other")


def key_left_out(schema: Any, do: str = "deny") -> bool:
    rules = Rules([{"name": "r", "do": do, "match": {"text": "secret"}}])
    return rules.explain("t", {}, schema=schema)[0].matches


@each(("schema", "is_denied"), [
    ({"properties": {"text": {"default": "secret"}}}, True),
    ({"properties": {"text": {"default": "SECRET\n"}}}, True),
    ({"properties": {"text": {"default": "public"}}}, False),
    ({"properties": {"text": {"default": None}}}, True),
    ({"properties": {"text": {"type": "string"}}}, True),
    ({"properties": {"text": True}}, True),
    ({"properties": {"other": {}}}, False),
    ({"type": "object"}, False),
    ({"properties": {}, "allOf": [{}]}, True),
    ({"$ref": "#/$defs/x"}, True),
    ({"properties": "broken"}, True),
    (None, True),
])  # fmt: skip
def test_a_key_that_is_left_out_is_compared_by_its_default(schema: Any, is_denied: bool) -> None:
    """Without a default, or where the schema is unknown, it could be what a denial names. Nothing is allowed so."""
    assert key_left_out(schema) is is_denied
    assert not key_left_out(schema, do="allow")


def test_a_key_that_the_schema_does_not_have_may_be_one_that_is_left_out() -> None:
    """As with `AliasChoices` of pydantic, of which a schema shows one: the tool gets the value, not the default."""

    class Where(BaseModel):
        path: str = Field("/srv/a", validation_alias=AliasChoices("path", "file"))

    schema = Where.model_json_schema()
    assert [*schema["properties"]] == ["path"]
    assert Where.model_validate({"file": "/etc/shadow"}).path == "/etc/shadow"
    rules = Rules([{"name": do, "do": do, "match": {"path": "/etc/**"}} for do in ("deny", "ask", "allow")])
    for values, expected in (({"file": "/etc/shadow"}, True), ({}, False), ({"path": "/srv/b", "note": "x"}, False)):
        found = [result.matches for result in rules.explain("read", values, schema=schema)]
        assert found == [expected, expected, False]


def test_hostile_texts_take_no_long_time() -> None:
    """Time grows with the length of the text, whatever is in it, and hardly with the number of rules."""
    pattern = "*a*b*?c*a?d*"
    rules = Rules(
        [{"name": f"{number}", "do": "deny", "match": {"text": pattern + str(number)}} for number in range(20)]
    )
    start = time.process_time()
    for hostile in ("a" * 30_000, "../" * 30_000, "%25" * 30_000, "'\\ /." * 20_000, "é\u200b" * 30_000):
        rules.explain("t", {"text": hostile}, schema=OPEN)
    assert time.process_time() - start < 5
