"""The documentation of the rules says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

from tests.messages.bad_requests import BAD_REQUESTS, GOOD_REQUESTS, WARNED_REQUESTS
from toolloop.history import RULES

_DOCS = Path(__file__).resolve().parents[2] / "docs" / "history-rules.md"
_ROW = re.compile(r"^\| `([^`]+)` \| (.*) \| (.*) \| (.*) \| (.*) \|$", re.MULTILINE)


def test_the_docs_have_one_line_per_rule() -> None:
    """The table holds every rule, in order, with its level, words, remedy and source."""
    rows = {name: tuple(rest) for name, *rest in _ROW.findall(_DOCS.read_text(encoding="utf-8"))}
    assert rows == {name: (rule.level, rule.says, rule.remedy, rule.source) for name, rule in RULES.items()}
    assert list(rows) == list(RULES)


def test_every_rule_but_two_is_in_the_corpus() -> None:
    """A request that breaks it; a history of 100,000 messages, or of 32 MB, is too long to write down."""
    shown = {bad.rule for bad in BAD_REQUESTS if bad.checked} | {rule for _, rule, _ in WARNED_REQUESTS}
    assert shown == RULES.keys() - {"too-many-messages", "request-size"}


def test_names_in_the_corpus_are_unique() -> None:
    """A name stands for one request."""
    names = [bad.name for bad in BAD_REQUESTS] + [name for name, *_ in GOOD_REQUESTS] + [w[0] for w in WARNED_REQUESTS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)
