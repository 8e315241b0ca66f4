"""What type checkers see of a handle: mypy and pyright check this file, nothing runs it."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import assert_type

from anthropic import Anthropic
from anthropic.types import MessageCreateParams
from anthropic.types.beta import message_create_params as beta_params

import toolloop
from toolloop import Answer, Approve, AsyncToolLoopHandle, Deny, LoopView, ToolCall, ToolLoopHandle, ToolRunner
from toolloop.errors import ModelError


def parameters_of_the_sdk_are_taken(
    client: Anthropic, params: MessageCreateParams, beta: beta_params.MessageCreateParamsNonStreaming
) -> None:
    ToolLoopHandle(client, params=params)
    ToolLoopHandle(client, params=beta)
    ToolRunner(client, params=params)


def decisions_are_mappings_of_either_key(
    handle: ToolLoopHandle,
    runner: ToolRunner,
    by_id: dict[str, Approve | Deny],
    by_call: dict[ToolCall, Approve],
    either: dict[str | ToolCall, Answer],
) -> None:
    runner.decide(by_id)
    handle.decide(by_id)
    handle.decide(by_call)
    handle.decide(either)
    handle.decide({})
    handle.decide({"a": Approve(), "b": Deny("no")})
    handle.decide({3: Approve()})  # type: ignore[type-var]
    handle.decide({"a": "yes"})  # type: ignore[dict-item]


async def a_view_has_named_parts(handle: ToolLoopHandle, later: AsyncToolLoopHandle) -> None:
    view = assert_type(handle.view(), LoopView)
    assert_type(later.view(), LoopView)
    assert_type(view["text"], str | None)
    assert_type(view["usage"]["total_tokens"], int)
    assert_type(view["pending"][0]["why"], str | None)
    assert_type(view["children"][0]["children"][0]["name"], str)
    view["texts"]  # type: ignore[typeddict-item]
    assert_type((await later.run()).text, str | None)
    assert_type(toolloop.errors.ModelError, type[ModelError])
