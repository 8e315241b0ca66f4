"""A request for a compaction, over real HTTP: what it may go with, and what it gives."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest

from tests.testing.compacting import ASK, BETA, CALL, EDITS, HI, RESULT, SUMMARIZE, claude, refused, send, summary
from toolloop.testing import FakeMessagesAPI, compacted, reply, server_call


def test_it_is_answered_with_a_signed_block_alone_which_costs_an_iteration() -> None:
    """Its stop reason is `compaction`, the totals are nothing, and what the summary used is told beside them."""
    used = {"input_tokens": 900, "output_tokens": 50, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    with FakeMessagesAPI([compacted("They said hi.", usage=used)]) as api:
        message = send(api, compaction=SUMMARIZE)
    assert message["stop_reason"] == "compaction"
    (block,) = message["content"]
    assert block.pop("signature")
    assert block == {"type": "compaction", "content": "They said hi."}
    usage = message["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (0, 0)
    assert usage["iterations"] == [{"type": "compaction", **used}]


def test_a_stream_carries_the_same() -> None:
    """The summary comes in one delta, and what signs it with the start of its block."""
    with FakeMessagesAPI([compacted("Hi.", encrypted_content="E"), compacted("Hi.", encrypted_content="E")]) as api:
        whole = send(api, compaction=SUMMARIZE)
        with api.client().beta.messages.stream(**ASK, compaction=SUMMARIZE, betas=[BETA]) as stream:
            deltas = [event.delta.to_dict() for event in stream if event.type == "content_block_delta"]
            streamed = stream.get_final_message().to_dict(mode="json", warnings=False)
    assert deltas == [{"type": "compaction_delta", "content": "Hi.", "encrypted_content": "E"}]
    assert streamed["content"] == whole["content"]
    assert (streamed["usage"], streamed["stop_reason"]) == (whole["usage"], "compaction")


def test_it_wants_its_beta() -> None:
    """The beta of the edit is another."""
    for beta in ("compact-2026-01-12", "context-management-2025-06-27"):
        with FakeMessagesAPI([]) as api:
            error = refused(api, beta, compaction=SUMMARIZE)
            assert "compaction: Extra inputs are not permitted" in str(error)


@pytest.mark.parametrize(
    ("compaction", "message"),
    [
        ({"type": "summarize", "instructions": "Short."}, None),
        ({"type": "summarize", "instructions": None}, None),
        ({"type": "summary"}, "compaction.type: Input should be 'summarize'"),
        ({}, "compaction.type: Field required"),
        ({"type": "summarize", "trigger": None}, "compaction.trigger: Extra inputs are not permitted"),
        ("summarize", "compaction: Input should be an object"),
        ({"type": "summarize", "instructions": 7}, "compaction.instructions: Input should be a valid string"),
    ],
)
def test_it_has_the_shape_of_the_sdk(compaction: Any, message: str | None) -> None:
    with FakeMessagesAPI([compacted("Hi.")]) as api:
        if message is None:
            send(api, compaction=compaction)
        else:
            assert message in str(refused(api, compaction=compaction))


FORMAT = {"format": {"type": "json_schema", "schema": {"type": "object"}}}
TOGETHER: list[tuple[str, Any, Any]] = [
    ("context_management", EDITS, None),
    ("stop_sequences", ["stop"], []),
    ("output_config", FORMAT, {"effort": "high"}),
    ("output_format", FORMAT["format"], None),
    ("tool_choice", {"type": "any"}, {"type": "auto"}),
    ("tool_choice", {"type": "tool", "name": "add"}, {"type": "none"}),
]


@pytest.mark.parametrize(("name", "wrong", "right"), TOGETHER)
def test_what_only_shapes_a_reply_cannot_go_with_it(name: str, wrong: Any, right: Any) -> None:
    """There is none: the SDK's tool runner leaves these out. Without a compaction they are taken."""
    betas = (BETA, "context-management-2025-06-27", "structured-outputs-2025-11-13")
    for value in (wrong, right):
        with FakeMessagesAPI([reply("fine")]) as api:
            send(api, *betas, extra_body={name: value})
    with FakeMessagesAPI([compacted("Hi.")]) as api:
        send(api, *betas, compaction=SUMMARIZE, extra_body={name: right})
    with FakeMessagesAPI([]) as api:
        error = refused(api, *betas, compaction=SUMMARIZE, extra_body={name: wrong})
        assert f"compaction: cannot be combined with `{name}" in str(error)


FINISHED: dict[str, list[Any]] = {
    "words of the user": [HI],
    "an answer": [HI, claude("Hello.")],
    "an answer that ends in a blank": [HI, claude("Hello. ")],
    "results": [HI, claude(CALL), {"role": "user", "content": [RESULT]}],
    "words after a compaction": [HI, claude({"type": "compaction", "content": "So far."}, "Hello.")],
}


@pytest.mark.parametrize("name", FINISHED)
def test_a_conversation_may_be_summarized_wherever_no_turn_is_open(name: str) -> None:
    """Even where the model spoke last: that is no prefill then."""
    with FakeMessagesAPI([compacted("Hi.")]) as api:
        send(api, compaction=SUMMARIZE, messages=FINISHED[name])


OPEN: dict[str, list[Any]] = {
    "a call": [HI, claude(CALL)],
    "a server call": [HI, claude(server_call("web_search", id="srvtoolu_1"))],
    "a server call over a round": [
        *(HI, claude(server_call("web_search", id="srvtoolu_1"), CALL)),
        {"role": "user", "content": [RESULT]},
    ],
}


@pytest.mark.parametrize("name", OPEN)
def test_an_open_turn_is_not_summarized(name: str) -> None:
    with FakeMessagesAPI([]) as api:
        error = refused(api, compaction=SUMMARIZE, messages=OPEN[name])
        assert (type(error).__name__, error.error_code) == (
            "CompactionIncompleteTurnError",
            "compaction_incomplete_turn",
        )


def test_a_pause_is_not_summarized_and_its_end_is() -> None:
    """Of a pause that ends in words only the server knows that it is one."""
    with FakeMessagesAPI([reply("So far", stop_reason="pause_turn"), reply("so good."), compacted("Good.")]) as api:
        paused = [HI, claude(*send(api)["content"])]
        assert refused(api, compaction=SUMMARIZE, messages=paused).error_code == "compaction_incomplete_turn"
        ended = [*paused, claude(*send(api, messages=paused)["content"])]
        assert send(api, compaction=SUMMARIZE, messages=ended)["stop_reason"] == "compaction"


def test_what_is_a_summary_already_is_not_summarized() -> None:
    with FakeMessagesAPI([compacted("Hi."), compacted("Hi, twice.")]) as api:
        block = summary(api)
        error = refused(api, compaction=SUMMARIZE, messages=[claude(block)])
        assert error.error_code == "compaction_nothing_to_summarize"
        assert summary(api, messages=[claude(block), HI])["content"] == "Hi, twice."


def test_a_script_that_answers_it_with_a_reply_is_told_so() -> None:
    """The API has no reply to give then, nor has the test that says one."""
    for answer in (reply("Hello."), compacted("Hi.", reply("Hello."))):
        with (
            FakeMessagesAPI([answer]) as api,
            pytest.raises(anthropic.InternalServerError, match="give what compacted"),
        ):
            send(api, compaction=SUMMARIZE)


def test_a_compaction_that_failed_is_a_block_without_content_and_unsigned() -> None:
    """It may come back anywhere, and does nothing."""
    with FakeMessagesAPI([compacted(None), reply("fine")]) as api:
        block = summary(api)
        assert block == {"type": "compaction", "content": None}
        send(api, messages=[HI, claude(block), HI])
