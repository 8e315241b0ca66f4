"""Members of toolsets wherever a call is named: a tool of ours may have the name of a member."""

from __future__ import annotations

from typing import Any

from anthropic.tools import computer
from starlette.testclient import TestClient

from tests.otel.traced import Traces
from toolloop import (
    Answer,
    Approve,
    Grant,
    Inbox,
    LoopConfig,
    MemoryStore,
    ToolCall,
    ToolLoopHandle,
    Yielded,
    tool,
)
from toolloop.inbox.page import inbox_app
from toolloop.stores.codec import digest_snapshot
from toolloop.testing import ScriptedProvider

PARAMS: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
RAW: Any = {**PARAMS, "tools": [{"type": "computer_toolset_20260801"}]}


class Desktop(computer.BetaAbstractComputerToolset20260801):
    def wait(self, context: Any, given: Any) -> None:
        """Wait."""


@tool(needs_approval=True)
def wait(duration: float) -> str:
    """Wait."""
    return "ours"


def call(call_id: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "wait", "input": {"duration": 1}, **more}


def member(call_id: str) -> dict[str, Any]:
    return call(call_id, toolset_name="computer")


def provider(*rounds: dict[str, Any] | tuple[dict[str, Any], ...]) -> ScriptedProvider:
    """A model that makes these calls, a round each, and then ends."""
    contents = [[*each] if isinstance(each, tuple) else [each] for each in rounds]
    said: Any = [{"content": content, "stop_reason": "tool_use"} for content in contents]
    return ScriptedProvider([*said, {"content": [{"type": "text", "text": "done"}], "stop_reason": "end_turn"}])


def test_a_grant_for_a_tool_never_approves_a_member_of_that_name() -> None:
    """Nor the other way round."""
    for one, other in ((call, member), (member, call)):
        model = provider(one("a"), (one("b"), other("c")))
        handle = ToolLoopHandle(model, params=PARAMS, tools=[Desktop(), wait])
        turn = handle.next_turn()
        assert isinstance(turn, Yielded)
        turn.approve(turn.pending[0], by="ana", remember=Grant())
        assert [each.id for each in handle.run().pending] == ["c"]


def test_an_inbox_speaks_to_a_loop_with_a_toolset() -> None:
    """While a member waits, and after the end."""
    store, model = MemoryStore(), provider(member("a"))
    with ToolLoopHandle.open(store, "l", model, params=PARAMS, tools=[Desktop()]) as handle:
        handle.run()
    inbox = Inbox(store)
    inbox.say("l", "hurry")
    inbox.decide("l", {"a": Approve(by="ana")})
    with ToolLoopHandle.open(store, "l", model, tools=[Desktop()]) as handle:
        handle.run()
    inbox.say("l", "and now?")
    assert [each["content"] for each in inbox.show("l")["messages"] if each["role"] == "user"][-1] == "and now?"


def test_each_place_that_names_a_call_names_the_toolset() -> None:
    """Policies, filters, the inbox, the page, spans and the trail."""
    seen, traces, store = list[Any](), Traces(), MemoryStore()

    def policy(asked: ToolCall, view: Any) -> None:
        seen.append((asked.name, asked.toolset))

    config = LoopConfig(
        on_tool_call=policy,
        result_filters=[lambda asked, content: seen.append(asked.name)],
        observers=[traces.observer],
    )
    model = provider((member("a"), call("b")))
    with ToolLoopHandle.open(
        store, "l", model, params=PARAMS, tools=[Desktop(), wait], config=config, context=None
    ) as handle:
        handle.next_turn()
        assert seen == [("computer.wait", "computer"), ("wait", None)]
        assert [each.name for each in Inbox(store).pending()] == ["computer.wait", "wait"]
        assert [each.name for each in store.head("l").pending] == ["computer.wait", "wait"]
        page = TestClient(inbox_app(store, who=lambda _: "ana")).get("/").text
        assert "computer.wait" in page
        handle.decide({"a": Approve(), "b": Approve()})
        handle.run().unwrap()
    assert sorted(seen[2:]) == ["computer.wait", "wait"]
    assert {"execute_tool computer.wait", "execute_tool wait"} <= {*traces.names}
    assert "computer.wait" in str(Inbox(store).trail("l"))


def test_a_toolset_in_the_parameters_is_external() -> None:
    """Its calls wait for an answer, also where a tool of ours has the name of a member."""
    handle = ToolLoopHandle(provider(member("a")), params=RAW, tools=[wait])
    assert [(each.name, each.why) for each in handle.run().pending] == [("computer.wait", "external")]
    handle.decide({"a": Answer("waited")})
    handle.run().unwrap()


def as_earlier(snapshot: Any) -> Any:
    """A snapshot as versions before toolsets wrote it: members had the names in their blocks."""

    def edit(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: edit(each) for key, each in value.items() if key != "members"}
        if isinstance(value, list):
            return [edit(each) for each in value]
        return {"computer.wait": "wait", "external": "approval"}.get(value, value) if isinstance(value, str) else value

    fields = edit(snapshot)
    return {
        **fields,
        "digest": digest_snapshot({key: each for key, each in fields.items() if key not in ("format", "digest")}),
    }


def test_a_loop_of_an_earlier_version_keeps_the_name_under_which_its_open_call_was_shown() -> None:
    """What a person saw is what runs: the tool of that name, or nothing. Later calls have the names of members."""
    first = ToolLoopHandle(provider(member("a")), params=RAW, tools=[wait])
    first.next_turn()
    cases: list[tuple[list[Any], str]] = [
        ([Desktop(), wait], "ours"),
        ([Desktop()], "The tool 'wait' is no longer there."),
    ]
    for tools, result in cases:
        model = provider(member("b"))
        handle = ToolLoopHandle.restore(as_earlier(first.snapshot()), model, params=RAW, tools=tools, on_drift="accept")
        assert [each.name for each in handle.pending] == ["wait"]
        handle.decide({"a": Approve()})
        turn = handle.run()
        assert model.requests[0]["messages"][-1]["content"][0]["content"].startswith(result)
        assert [(each.id, each.name, each.why) for each in turn.pending] == [("b", "computer.wait", "approval")]
