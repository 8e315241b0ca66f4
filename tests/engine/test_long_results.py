"""Long results: the model gets both ends, and reads the rest with a tool of the loop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.kit.each import each
from tests.kit.effort import examples
from tests.kit.loop_trees import make_bare, task
from tests.kit.support import expect_yielded
from tests.kit.tools import params, user
from tests.measured.speed.work import counting
from tests.promises.properties.checked_tools import PNG
from toolloop import KeepResults, LoopConfig, MemoryStore, SqliteStore, ToolLoopHandle, ToolRunner, sub_loop, tool
from toolloop.compaction import MaskResults
from toolloop.errors import BadTool
from toolloop.responses import RawOutputs
from toolloop.stores.checkpoints import MEANING, read_checkpoint
from toolloop.testing import ScriptedProvider, call, reply

KEEP = KeepResults(over=100, head=20, tail=10)
WHOLE = "".join(f"line {number}\n" for number in range(100))
DONE = reply("done")
LOG = call("log", {}, id="log-1")


@tool
def log() -> str:
    """Read the log."""
    return WHOLE


def read(name: str, start: int, length: int, id: str = "read") -> dict[str, Any]:  # noqa: A002 - as `call` has it
    return reply(calls=[call("read_result", {"name": name, "start": start, "length": length}, id=id)])


def results_in(messages: Sequence[Any]) -> list[Any]:
    """The contents of the results, in order."""
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    return [block["content"] for block in blocks if block["type"] == "tool_result"]


def handle_of(script: Any, tools: Any = (log,), **config: Any) -> ToolLoopHandle:
    given = LoopConfig(**{"keep_results": KEEP, "max_iterations": None, **config})
    return ToolLoopHandle(ScriptedProvider(script), params=params(messages=[user("Read.")]), tools=tools, config=given)


def test_the_model_gets_both_ends_and_reads_the_rest() -> None:
    """At most `head + tail` characters a call, which are not kept again. The caller sees the whole result."""
    handle = handle_of([reply(calls=[LOG]), read("log-1", 20, 999), DONE])
    turn = expect_yielded(handle.next_turn())
    (result,) = turn.results
    assert result is not None
    assert result.content == WHOLE
    turn.continue_loop()
    assert handle.run().unwrap().text == "done"
    note = f"[Left out: the characters from 20 to {len(WHOLE) - 10} of {len(WHOLE)}. Read them with "
    note += 'read_result(name="log-1", start=20, length=30).]'
    assert results_in(handle.messages) == [f"{WHOLE[:20]}\n{note}\n{WHOLE[-10:]}", WHOLE[20:50]]


@examples(30)
@given(st.text(max_size=300), st.integers(1, 40), st.integers(1, 40), st.integers(0, 60))
def test_all_of_a_long_result_can_be_read(text: str, head: int, tail: int, more: int) -> None:
    """Also if it is a list of texts; a short one is in the history as it is."""
    keep = KeepResults(over=head + tail + more, head=head, tail=tail)

    @tool(name="log")
    def texts() -> Any:
        """Return a text."""
        return text

    starts = range(0, len(text), head + tail)
    reads = [read("log-1", start, head + tail, f"read-{start}") for start in starts]
    handle = handle_of([reply(calls=[LOG]), *reads, DONE], [texts], keep_results=keep)
    handle.run()
    first, *parts = results_in(handle.messages)
    if len(text) <= keep.over:
        assert text in ("", first)
    else:
        assert "".join(parts) == text
        assert first.startswith(text[:head])
        assert first.endswith(text[-tail:])


def test_results_of_other_content_and_errors_of_the_reader() -> None:
    """Pictures stay whole; a name that is unknown, and a part outside of the result, are errors for the model."""
    lines = [{"type": "text", "text": "a" * 80}, {"type": "text", "text": "b" * 80}]

    @tool(name="log")
    def several(number: int) -> Any:
        """Return texts, at first with a picture."""
        return [RawOutputs([*lines, PNG]), lines][number]

    calls = [call("log", {"number": number}, id=f"log-{number}") for number in range(2)]
    wrong = [read("log-0", 0, 9, "r1"), read("log-1", 999, 9, "r2"), read("log-1", 79, 3, "r3")]
    handle = handle_of([reply(calls=calls), *wrong, DONE], [several])
    handle.run()
    whole, cut, unknown, outside, part = results_in(handle.messages)
    assert whole == [*lines, PNG]
    assert cut.startswith("a" * 20 + "\n[Left out: ")
    assert "no long result has the name 'log-0'" in unknown
    assert "the result has 161 characters" in outside
    assert part == "a\nb"


@each("how", ["sleep", "snapshot", "fork"])
def test_it_is_read_after_a_sleep_from_a_snapshot_and_in_a_fork(how: str) -> None:
    """The text is in the journal, and in the snapshot. So is that of a masked result."""
    store, left = MemoryStore(), iter([reply(calls=[LOG]), read("log-1", 0, 30, "read"), DONE])
    parts: dict[str, Any] = {"tools": [log], "config": LoopConfig(keep_results=KEEP)}
    provider = ScriptedProvider(lambda _: next(left))
    handle = ToolLoopHandle.open(store, "loop", provider, params=params(messages=[user("Read.")]), **parts)
    expect_yielded(handle.next_turn())
    if how == "sleep":
        handle.close()
        handle = ToolLoopHandle.open(store, "loop", provider, **parts)
    elif how == "snapshot":
        handle = ToolLoopHandle.restore(handle.snapshot(), provider, **parts)
    else:
        handle = handle.fork(at=1)
    if (turn := handle.pending_turn) is not None:
        turn.continue_loop()
    assert handle.run().unwrap().text == "done"
    assert results_in(handle.messages)[-1] == WHOLE[:30]


def test_it_is_read_from_a_checkpoint(tmp_path: Path) -> None:
    """By a process that reads only the events after it."""
    whole = WHOLE * 200  # a checkpoint is due after it

    @tool(name="log")
    def long() -> str:
        """Read a long log."""
        return whole

    more = [reply(calls=[call("log", {}, id=f"log-{number}")]) for number in range(2, 6)]
    left = iter([reply(calls=[LOG]), *more, read("log-1", 20, 30), read("log-2", 780, 99), DONE])
    parts: dict[str, Any] = {
        "provider": ScriptedProvider(lambda _: next(left)),
        "tools": [long],
        "config": LoopConfig(keep_results=KEEP, max_iterations=None),
    }
    with SqliteStore(tmp_path / "loops.db") as store:
        handle = ToolLoopHandle.open(store, "loop", params=params(messages=[user("Read.")]), **parts)
        for _ in range(5):
            expect_yielded(handle.next_turn()).continue_loop()
        handle.close()
        known = read_checkpoint("loop", store.checkpoint("loop", meaning=MEANING) or b"")
        assert [name for name, _ in known.state.root.results][:2] == ["log-1", "log-2"]
    with SqliteStore(tmp_path / "loops.db") as store, counting() as work:
        handle = ToolLoopHandle.open(store, "loop", **parts)
        assert work.events < 9
        assert handle.run().unwrap().text == "done"
        assert results_in(handle.messages)[-2:] == [whole[20:50], whole[780:810]]
        handle.close()


EDITS = st.lists(st.sampled_from(["keep", "redact", "end", "mask", "remove", "move"]), min_size=1, max_size=5)


@examples(30)
@given(EDITS, st.booleans())
def test_a_result_that_is_changed_by_hand_is_not_read_any_more(edits: list[str], masked: bool) -> None:
    """However little of it, and if it is removed. Others can be read, in their old place or in another."""
    names = [f"log-{number}" for number in range(len(edits))]
    calls = [reply(calls=[call("log", {}, id=name)]) for name in names]
    store, left = MemoryStore(), iter([*calls, DONE, *(read(name, 0, 9, f"r-{name}") for name in names), DONE])
    compaction = MaskResults(1, 0, at_tokens=1) if masked else None
    parts: dict[str, Any] = {"provider": ScriptedProvider(lambda _: next(left)), "tools": [log]}
    config = LoopConfig(keep_results=KEEP, compaction=compaction, max_iterations=None)
    handle = ToolLoopHandle.open(store, "loop", params=params(messages=[user("Read.")]), config=config, **parts)
    handle.run()
    history = handle.messages_mut()
    rounds = {name: history[1 + 2 * number :][:2] for number, name in enumerate(names)}
    done, moved = history[-1:], list[Any]()
    del history[1:]
    for name, edit in zip(names, edits, strict=True):
        asked, answer = rounds[name]
        block = answer["content"][0]
        changed = {"redact": "[redacted]", "end": f"x{block['content']}", "mask": f"[Gone. {name}]"}.get(edit)
        if changed is not None:
            answer = {**answer, "content": [{**block, "content": changed}]}
        if edit != "remove":
            (moved if edit == "move" else history).extend([asked, answer])
    history.extend([*moved, *done])
    handle.follow_up("Read again.")
    handle.close()
    handle = ToolLoopHandle.open(store, "loop", config=LoopConfig(keep_results=KEEP, max_iterations=None), **parts)
    handle.run()
    found = results_in(handle.messages)[-len(names) :]
    for name, edit, result in zip(names, edits, found, strict=True):
        readable = edit in ("keep", "move")
        assert result == WHOLE[:9] if readable else f"no long result has the name '{name}'" in result


def test_a_result_that_the_caller_of_a_runner_changes_is_not_read_any_more() -> None:
    """With the messages that it sets, before the call that reads it runs."""
    provider = ScriptedProvider([reply(calls=[LOG]), read("log-1", 20, 30), DONE])
    config = LoopConfig(keep_results=KEEP)
    runner = ToolRunner(provider, params=params(messages=[user("Read.")]), tools=[log], config=config)
    for number, message in enumerate(runner):
        if number == 1:
            history = runner.params["messages"]
            history[-1]["content"][0]["content"] = "[redacted]"
            runner.set_messages_params({**runner.params, "messages": [*history, message]})
    redacted, unknown = results_in(provider.requests[-1]["messages"])
    assert redacted == "[redacted]"
    assert "no long result has the name 'log-1'" in unknown


def test_a_result_of_a_turn_that_is_taken_back_is_not_read_any_more() -> None:
    """With `follow_up(replace_last=True)`."""
    handle = handle_of([reply(calls=[LOG]), DONE, read("log-1", 20, 30), DONE])
    handle.run()
    handle.follow_up("Read it otherwise.", replace_last=True)
    handle.run()
    assert "no long result has the name 'log-1'" in str(results_in(handle.messages))


def test_marks_and_empty_citations_do_not_keep_a_result_long() -> None:
    """The API's own texts may have both. The last mark stays."""
    marks = [{"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}]
    plain = {"type": "text", "text": "a" * 200}
    contents: dict[str, list[Any]] = {
        "mark": [{**plain, "cache_control": marks[0]}],
        "marks": [{**plain, "cache_control": marks[1]}, {**plain, "cache_control": marks[0]}, plain],
        "none": [{**plain, "citations": None, "cache_control": None}],
        "empty": [{**plain, "citations": []}],
    }

    @tool(name="log")
    def texts(of: str) -> Any:
        """Return texts."""
        return RawOutputs(contents[of])

    asked = [reply(calls=[call("log", {"of": name}, id=name)]) for name in contents]
    reads = [read(name, 0, 30, f"r-{name}") for name in contents]
    handle = handle_of([*asked, *reads, DONE], [texts])
    handle.run()
    mark, last, none, empty, *parts = results_in(handle.messages)
    assert parts == ["a" * 30] * 4
    assert [[block["cache_control"] for block in found] for found in (mark, last)] == [[marks[0]], [marks[0]]]
    assert (mark[0]["text"], none) == (empty.replace('"empty"', '"mark"'), empty.replace('"empty"', '"none"'))


@each("how", ["sleep", "snapshot"])
def test_without_a_config_the_stored_one_brings_the_reader(how: str) -> None:
    """Results are still shortened, and can be read."""
    store, left = MemoryStore(), iter([reply(calls=[LOG]), read("log-1", 20, 30), DONE])
    provider = ScriptedProvider(lambda _: next(left))
    config = LoopConfig(keep_results=KEEP)
    handle = ToolLoopHandle.open(
        store, "loop", provider, params=params(messages=[user("Read.")]), tools=[log], config=config
    )
    expect_yielded(handle.next_turn())
    snapshot = handle.snapshot()
    handle.close()
    if how == "sleep":
        handle = ToolLoopHandle.open(store, "loop", provider, tools=[log])
    else:
        handle = ToolLoopHandle.restore(snapshot, provider, tools=[log])
    handle.run()
    assert [each["name"] for each in provider.requests[-1]["tools"]] == ["log", "read_result"]
    assert results_in(handle.messages)[-1] == WHOLE[20:50]


def test_a_masked_result_is_read_in_the_same_way() -> None:
    """One that was long already keeps its name; what the reader returned is masked without one."""
    calls = [reply(calls=[call("log", {}, id=f"log-{number}")]) for number in range(5)]
    script = [*calls[:2], read("log-0", 0, 600, "r1"), *calls[2:], read("log-0", 5, 7, "r2"), DONE]
    for keep in (KeepResults(over=700, head=300, tail=300), KeepResults(over=9000, head=4000, tail=4000)):
        handle = handle_of(script, keep_results=keep, compaction=MaskResults(1, 0, at_tokens=1))
        handle.run()
        results = results_in(handle.messages)
        assert results[0].endswith(' tokens. Read it with read_result(name="log-0", ...).]')
        assert results[2].endswith(" tokens.]")
        assert dict(handle.state.root.results)["log-0"] == WHOLE
        assert "r1" not in dict(handle.state.root.results)
        assert results[-1] == WHOLE[5:12]


def test_a_loop_inside_a_call_reads_its_own_results_alone() -> None:
    """With its own configuration."""
    config = LoopConfig(keep_results=KEEP)
    kid = sub_loop("kid", "Read.", params=make_bare(), tools=[log], config=config)
    seen: list[Any] = []

    def answer(body: Any) -> Any:
        if body["messages"][0]["content"] != "task":
            first = [reply(calls=[LOG]), reply(calls=[task("task")]), read("log-2", 0, 9), DONE]
            return first[len(body["messages"]) // 2]
        seen.append(body)
        rest = [reply(calls=[call("log", {}, id="log-2")]), read("log-1", 0, 9), read("log-2", 0, 9, "r2"), DONE]
        return rest[len(body["messages"]) // 2]

    handle = handle_of(answer, [log, kid])
    handle.run()
    _, unknown, own = results_in(seen[-1]["messages"])
    assert "no long result has the name 'log-1'" in unknown
    assert own == WHOLE[:9]
    assert "no long result has the name 'log-2'" in results_in(handle.messages)[-1]


def test_the_tool_is_defined_from_the_first_request_on_and_needs_no_approval() -> None:
    """Without `keep_results` there is none. It counts as a tool call."""
    handle = handle_of([reply(calls=[LOG]), read("log-1", 0, 9), DONE])
    handle.run()
    facts = {each.name: each for each in handle.state.root.setup.tools}
    assert (facts["read_result"].approval, facts["read_result"].effect) == ("never", "pure")
    bare_ = ToolLoopHandle(ScriptedProvider([DONE]), params=params(), tools=[log])
    assert [each.name for each in bare_.state.root.setup.tools] == ["log"]


@tool(name="read_result")
def taken() -> str:
    """Have the name of the reader."""
    return ""


@each(
    ("keep", "words"),
    [
        (KeepResults(over=10, head=9, tail=9), "keep_results.over is 10; give at least head [+] tail, 18"),
        (KeepResults(head=0), "keep_results.head is 0; give a whole number"),
        (3, "keep_results is 3; give a KeepResults"),
    ],
)
def test_values_that_make_no_sense_are_refused(keep: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LoopConfig(keep_results=keep)


def test_a_tool_of_that_name_is_refused_at_construction() -> None:
    """A tool of the loop, one of a nested loop, and a definition in the parameters."""
    with pytest.raises(BadTool, match=r"config\.keep_results adds a tool of that name"):
        handle_of([DONE], [taken])
    with pytest.raises(BadTool, match=r"config\.keep_results adds a tool of that name"):
        sub_loop("kid", "Read.", params=make_bare(), tools=[taken], config=LoopConfig(keep_results=KEEP))
    defined = {"name": "read_result", "input_schema": {"type": "object"}}
    with pytest.raises(BadTool, match="read_result"):
        ToolLoopHandle(ScriptedProvider([DONE]), params=params(tools=[defined]), config=LoopConfig(keep_results=KEEP))
