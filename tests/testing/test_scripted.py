"""The scripted providers: no wire, the same words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from toolloop.errors import ModelError
from toolloop.providers.protocol import Request
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply, server_call, server_result

ASK = Request('{"model":"claude-opus-5-5","max_tokens":9}', ['{"role":"user","content":"żółw"}'])


def async_answer(provider: AsyncScriptedProvider, backend: str = "asyncio") -> dict[str, Any]:
    return anyio.run(provider.send, ASK, backend=backend)


def test_a_reply_is_made_whole() -> None:
    provider = ScriptedProvider([reply("hi", calls=[call("add", {"n": 2**70})])])
    assert provider.send(ASK) == {
        "id": "msg_fake_000001",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5-5",
        "content": [
            {"type": "text", "text": "hi"},
            {"type": "tool_use", "id": "toolu_fake_000001", "name": "add", "input": {"n": 2**70}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "stop_details": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }


def test_every_request_is_copied_when_it_is_sent() -> None:
    plain: Mapping[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    provider = ScriptedProvider([reply(), reply()])
    provider.send(ASK)
    provider.send(plain)  # type: ignore[arg-type]
    plain["messages"].append("later")
    assert provider.bodies[0] == ASK.body()
    assert provider.requests[0] == dict(ASK)
    assert provider.requests[1] == {"model": "m", "messages": [{"role": "user", "content": "x"}]}


def test_an_exception_of_the_script_is_raised() -> None:
    trouble = ModelError("overloaded", status=529, retryable=True)
    provider = ScriptedProvider([trouble, reply("ok")])
    with pytest.raises(ModelError) as caught:
        provider.send(ASK)
    assert caught.value is trouble
    assert provider.send(ASK)["content"] == [{"type": "text", "text": "ok"}]
    assert len(provider.requests) == 2


def test_a_script_that_has_run_out_fails_the_test() -> None:
    provider = ScriptedProvider([])
    with pytest.raises(AssertionError, match="the script has no reply for request number 1"):
        provider.send(ASK)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_async_one_answers_alike(backend: str) -> None:
    answers = [reply("hi", thinking="hm", content=[server_call("web_search"), server_result("web_search")])]
    assert async_answer(AsyncScriptedProvider(answers), backend) == ScriptedProvider(answers).send(ASK)


def test_the_async_one_awaits_a_function_that_is_async() -> None:
    async def answer(request: dict[str, Any]) -> dict[str, Any]:
        await anyio.lowlevel.checkpoint()
        return reply(request["messages"][0]["content"])

    assert async_answer(AsyncScriptedProvider(answer))["content"][0]["text"] == "żółw"
