"""The fake API's message threads, asked by the client of the SDK: what it holds, and what it refuses."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from anthropic.types import (
    ThreadAlreadyContinuedError,
    ThreadContinueInFlightError,
    ThreadFingerprintMismatchError,
    ThreadNotFoundError,
    ThreadUnsupportedRequestError,
)

from tests.kit.concurrency import Background, wait_for
from tests.kit.each import each
from tests.testing.asking import Said, ask
from toolloop.testing import FakeMessagesAPI, delayed, reply

THREADS = "message-threads-2026-08-12"
TOOL = {"name": "look", "description": "d", "input_schema": {"type": "object"}}


def asked(last: str | None = None, text: str = "hi", **more: Any) -> dict[str, Any]:
    """A request that creates a thread, or continues from a reply."""
    thread = {"type": "create"} if last is None else {"type": "continue", "previous_message_id": last}
    said = [{"role": "user", "content": text}]
    return {"model": "claude-opus-5-5", "max_tokens": 9, "messages": said, "thread": thread, "betas": [THREADS], **more}


def test_a_thread_holds_the_conversation_with_its_system_and_tools() -> None:
    """A function of the script and `whole` have it all; other parameters are those of the request."""
    seen: list[Any] = []

    def answer(body: dict[str, Any]) -> Any:
        seen.append(body)
        return reply(str(len(seen)))

    with FakeMessagesAPI(answer) as api:
        create = api.client().beta.messages.create
        first = create(**asked(system="Be brief.", tools=[TOOL]))
        create(**asked(first.id, "more", max_tokens=7))
        assert seen == [request.whole for request in api.requests]
        last = seen[-1]
        assert (last["system"], last["tools"], last["max_tokens"]) == ("Be brief.", [TOOL], 7)
        assert [message["role"] for message in last["messages"]] == ["user", "assistant", "user"]
        assert api.requests[-1].json["messages"] == last["messages"][-1:]


def test_each_reply_is_continued_once() -> None:
    """The second request is refused, and so is one while the first is being answered; it may be asked again."""
    late = delayed(threading.Event(), reply("two"))
    with FakeMessagesAPI([reply("one"), late, reply("three")]) as api:
        create = api.client().beta.messages.create
        first = create(**asked())
        second = Background(lambda: create(**asked(first.id)))
        wait_for(late.arrived)
        for _ in range(2):
            with pytest.raises(ThreadContinueInFlightError):
                create(**asked(first.id))
        late.release()
        last = second.result()
        with pytest.raises(ThreadAlreadyContinuedError):
            create(**asked(first.id))
        assert create(**asked(last.id)).content[0].to_dict()["text"] == "three"
        assert [request.status for request in api.requests] == [200, 200, 400, 400, 400, 200]


def test_lost_threads_are_not_found() -> None:
    """Neither are replies of requests without a thread."""
    with FakeMessagesAPI([reply("one"), reply("two")]) as api:
        create = api.client().beta.messages.create
        first = create(**asked())
        api.forget_threads()
        whole = asked()
        del whole["thread"]
        for last in (first.id, create(**whole).id, "msg_other", ""):
            with pytest.raises(ThreadNotFoundError) as caught:
                create(**asked(last))
            assert caught.value.status_code == 404


CHANGED: dict[str, dict[str, Any]] = {
    "the model": {"model": "claude-opus-5"},
    "one beta more": {"betas": [THREADS, "a"]},
}


@each("change", CHANGED)
def test_what_a_thread_freezes_must_stay(change: str) -> None:
    """The reply can still be continued with what it was."""
    with FakeMessagesAPI([reply("one"), reply("two")]) as api:
        create = api.client().beta.messages.create
        first = create(**asked())
        with pytest.raises(ThreadFingerprintMismatchError):
            create(**asked(first.id, **CHANGED[change]))
        create(**asked(first.id))


def test_the_order_of_betas_does_not_matter() -> None:
    """They are a set."""
    with FakeMessagesAPI([reply("one"), reply("two")]) as api:
        create = api.client().beta.messages.create
        first = create(**asked(betas=["a", THREADS, "b"]))
        assert create(**asked(first.id, betas=["b", "a", THREADS])).id != first.id


@pytest.mark.parametrize("name", ["system", "tools"])
def test_what_created_a_thread_is_not_repeated(name: str) -> None:
    """Not even unchanged."""
    same: dict[str, Any] = {"system": "Be brief.", "tools": [TOOL]}
    with FakeMessagesAPI([reply("one")]) as api:
        client = api.client()
        first = client.beta.messages.create(**asked(**same))
        body = asked(first.id, **{name: same[name]})
        del body["betas"]
        said = ask(client, body, anthropic_beta=THREADS)
        assert said == Said(400, "invalid_request_error", f"{name}: cannot be given when a thread is continued")


NOT_HELD: dict[str, Any] = {
    "refused": reply("no", stop_reason="refusal"),
    "by a fallback model": reply("so", usage={"iterations": [{"type": "message"}, {"type": "fallback_message"}]}),
}


@each("answer", NOT_HELD)
def test_some_replies_are_not_held(answer: str) -> None:
    """The conversation before them was continued nevertheless."""
    with FakeMessagesAPI([reply("one"), NOT_HELD[answer]]) as api:
        create = api.client().beta.messages.create
        first = create(**asked())
        second = create(**asked(first.id))
        with pytest.raises(ThreadNotFoundError):
            create(**asked(second.id))
        with pytest.raises(ThreadAlreadyContinuedError):
            create(**asked(first.id))


def test_some_parameters_do_not_go_with_threads() -> None:
    """The answer names no others than the SDK does."""
    with FakeMessagesAPI([]) as api, pytest.raises(ThreadUnsupportedRequestError):
        api.client().beta.messages.create(**asked(cache_control={"type": "ephemeral"}))


MALFORMED: dict[str, Any] = {
    "no type": {},
    "another type": {"type": "resume"},
    "no reply to continue from": {"type": "continue"},
    "a number": {"type": "continue", "previous_message_id": 5},
    "a list": {"type": "continue", "previous_message_id": ["a"]},
    "a new one that continues": {"type": "create", "previous_message_id": "msg_a"},
}


@each("case", MALFORMED)
def test_a_malformed_thread_is_refused_as_any_other_parameter(case: str) -> None:
    """It is not a thread that could be found or not."""
    body = {**asked(), "thread": MALFORMED[case]}
    del body["betas"]
    with FakeMessagesAPI([]) as api:
        said = ask(api.client(), body, anthropic_beta=THREADS)
        assert (said.status, said.error_code) == (400, None)
        assert said.message.startswith("thread")
