"""Long results are cut to both ends, and all of the text can be read."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from hypothesis import example, given, strategies as st

from tests.kit.machine import making as m
from toolloop.machine.record import journal_events as ev
from toolloop.machine.tree import begin, step
from toolloop.machine.values.calls import Result
from toolloop.machine.values.jsontext import decode, encode
from toolloop.machine.values.long_results import cut_content, name_result, read_part
from toolloop.machine.values.setup import KeepResults
from toolloop.machine.values.splicing import Splice

KEEP = KeepResults(over=30, head=10, tail=5)
LONG = "a long result " * 9


@example(LONG, 7)
@example([LONG, LONG], 7)
@given(st.one_of(st.text(max_size=90), st.lists(st.text(max_size=30), max_size=5)), st.integers(1, 9))
def test_a_long_text_is_cut_and_its_parts_are_the_text(given_: Any, length: int) -> None:
    """Also a list of texts. A short one is not cut."""
    content = given_ if isinstance(given_, str) else [{"type": "text", "text": text} for text in given_]
    whole = given_ if isinstance(given_, str) else "\n".join(given_)
    found = cut_content(KEEP, "a", encode(content))
    assert (found is None) == (len(whole) <= KEEP.over)
    if found is None:
        return
    cut, text = decode(found[0]), found[1]
    assert (text, cut[:10], cut[-5:]) == (whole, whole[:10], whole[-5:])
    assert name_result("a") in cut
    kept = [("a", "an older one"), ("a", text)]
    assert "".join(read_part(kept, "a", at, length) for at in range(0, len(text), length)) == whole


def test_other_content_is_not_cut_and_a_wrong_part_is_refused() -> None:
    """The error names what there is."""
    assert cut_content(KEEP, "a", encode([{"type": "text", "text": LONG}, {"type": "image", "source": {}}])) is None
    for name, start, length, words in (("b", 0, 1, "name 'b'"), ("a", 9, 1, "9 characters"), ("a", 0, 0, "at least 1")):
        with pytest.raises(ValueError, match=words):
            read_part([("a", "a" * 9)], name, start, length)


def mask(call_id: str, text: str = "") -> dict[str, Any]:
    """A result after a compaction."""
    return {"type": "tool_result", "tool_use_id": call_id, "content": text or f"[Read it with {name_result(call_id)})]"}


def test_a_loop_keeps_the_texts_that_its_history_has_in_part() -> None:
    """Of a long result, and of one that a compaction masked with a note; not of the reader's own."""
    names = {"a": "pure", "b": "pure", "c": "read_result", "d": "pure"}
    results = {"a": LONG, "b": "short", "c": LONG, "d": "other"}
    tools = (*m.TOOLS, evolve(m.TOOLS[0], name="read_result", effect="pure", approval="never"))
    events: list[ev.Event] = [
        ev.Requested(),
        m.make_replied("tool_use", *(m.call(key, name) for key, name in names.items())),
    ]
    events += [ev.Judged(), *(ev.Started(key) for key in names)]
    events += [ev.Ended(key, Result(encode(text)), iteration=1, attempt=1) for key, text in results.items()]
    state = begin(m.make_opened(m.user(), tools=tools, keep_results=KEEP))
    for event in [*events, ev.TurnEnded(), ev.Continued()]:
        state = step(state, event)
    assert list(state.root.results) == [("a", LONG)]
    contents = {block["tool_use_id"]: block["content"] for block in decode(state.root.messages[2])["content"]}
    assert (contents["b"], contents["c"], len(contents["a"]) < len(LONG) + 99) == ("short", LONG, True)
    new = [mask("a"), mask("b"), mask("c", LONG), mask("d", "gone"), {"type": "text", "text": "x"}]
    message = encode({"role": "user", "content": new})
    for splice in (Splice(2, 3, (message,)), Splice(0, 1, (encode({"role": "user", "content": '"tool_result"'}),))):
        state = step(state, ev.HistoryEdited((splice,), "MaskResults", 90, 60))
    assert list(state.root.results) == [("a", LONG), ("b", "short")]
