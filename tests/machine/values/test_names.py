"""Names of persons: which are one, and which are refused where they are given."""

from __future__ import annotations

import pytest

from toolloop.machine.values.names import find_name_flaw, to_name_key


@pytest.mark.parametrize("name", ["ana", "Ana", " ANA\t", "ana ", "\uff21\uff2e\uff21"])
def test_spellings_of_one_name_are_one_person(name: str) -> None:
    """After normalization, case folding and trimming."""
    assert to_name_key(name) == "ana"


def test_a_missing_name_is_not_a_person() -> None:
    """Nor is one of spaces alone."""
    assert [to_name_key(name) for name in (None, "", " ", "\u3000")] == ["", "", "", ""]


def test_names_that_look_alike_in_one_script_are_different_persons() -> None:
    """Cyrillic letters alone are a name like any other."""
    assert to_name_key("\u0441\u043e\u0441\u043e") != to_name_key("coco")
    assert find_name_flaw("\u0441\u043e\u0441\u043e") is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "it is empty"),
        (" \t", "it is empty"),
        ("rule: x", "names that begin with 'rule:'"),
        ("RULE : x", "names that begin with 'rule:'"),
        ("\uff52\uff55\uff4c\uff45\uff1ax", "names that begin with 'rule:'"),
        ("an\u200ba", "U\\+200B, which cannot be seen"),
        ("an\u0000a", "U\\+0000, which cannot be seen"),
        ("ana\u3164", "U\\+3164, which cannot be seen"),
        ("ana\ufe0f", "U\\+FE0F, which cannot be seen"),
        ("an\ud800a", "U\\+D800, which cannot be seen"),
        ("an\u0430", "it mixes CYRILLIC and LATIN letters"),
        ("\u03b1na", "it mixes GREEK and LATIN letters"),
    ],
)
def test_a_name_that_misleads_is_refused(name: str, why: str) -> None:
    """With the reason."""
    found = find_name_flaw(name)
    assert found is not None
    assert why.replace("\\", "") in found


PEOPLE = (
    *("ana", "Ana-Lu\u00eds O'Neil 3", "ana@example.com", "rules", "O\u02bcNeil"),
    *("\u5c71\u7530 Taro", "\u30bf\u30ed\u30fc \u5c71\u7530", "\uae40 Kim"),
)


@pytest.mark.parametrize("name", PEOPLE)
def test_names_of_people_are_accepted(name: str) -> None:
    """Also those that mix the scripts that Japanese, Korean and Chinese names mix."""
    assert find_name_flaw(name) is None
