"""The SDK's usage objects, field by field: each is read, or left out for a reason that is written here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from anthropic.types import MessageDeltaUsage
from anthropic.types import Usage as SdkUsage
from anthropic.types.beta import BetaMessageDeltaUsage, BetaUsage
from anthropic.types.beta.beta_iterations_usage import BetaIterationsUsageItem
from pydantic import BaseModel

from toolloop.core.replies import read_reply
from toolloop.core.usage import IterationUsage

_COUNTS = (
    *("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
    *("cache_creation.ephemeral_5m_input_tokens", "cache_creation.ephemeral_1h_input_tokens"),
)

# What is read, with a value that it may have.
READ: dict[str, Any] = {
    **dict.fromkeys(_COUNTS, 3),
    "output_tokens_details.thinking_tokens": 3,
    "server_tool_use.web_search_requests": 3,
    "server_tool_use.web_fetch_requests": 3,
    "service_tier": "priority",
    "speed": "fast",
    "inference_geo": "eu",
    "fallback_credit.status.type": "redeemed",
    **{f"iterations.{name}": 3 for name in _COUNTS},
    "iterations.type": "compaction",
    "iterations.model": "another",
}

# What is not, and why.
LEFT_OUT = {
    "fallback_credit.status.reason": "advice for the next request, no part of what this one cost",
    "fallback_credit.status.remove_to_redeem": "likewise",
}


def leaves(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """The fields that hold no further object, each with the names that lead to it."""
    for name, item in model.model_fields.items():
        inner = list(models(item.annotation))
        for kind in inner:
            yield from leaves(kind, f"{path}{name}.")
        if not inner:
            yield path + name


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models(part)


def entry_of(path: str, value: Any) -> IterationUsage:
    """The line of the usage log of a reply that says just this."""
    told: Any = value
    for depth, name in reversed(list(enumerate(path.split(".")))):
        told = {name: told}
        if depth == 1 and path.startswith("iterations."):
            told = [{"type": "message"} | told]
    return read_reply({"content": [], "usage": told}).entry(1, 0.0)


def test_every_field_of_the_sdk_is_read_or_left_out_for_a_reason() -> None:
    """A field that the SDK learns fails the build until somebody has thought of it; so does one that it forgets."""
    assert READ.keys() | LEFT_OUT.keys() == {*leaves(SdkUsage), *leaves(BetaUsage)}
    assert not READ.keys() & LEFT_OUT.keys()


def test_a_stream_tells_of_nothing_else() -> None:
    """What the end of a stream overwrites are fields of the same names."""
    assert {*leaves(MessageDeltaUsage), *leaves(BetaMessageDeltaUsage)} <= {*leaves(BetaUsage)}


@pytest.mark.parametrize("path", READ)
def test_what_is_read_is_seen_in_the_log(path: str) -> None:
    """Each field alone makes a difference."""
    nothing = entry_of("iterations.type", "message") if path.startswith("iterations.") else entry_of("none", 0)
    assert entry_of(path, READ[path]) != nothing


def test_the_kinds_of_iterations_are_known() -> None:
    """Of a new one somebody has to say whether it is a pass over the context."""
    kinds = {
        word for kind in models(BetaIterationsUsageItem) for word in get_args(kind.model_fields["type"].annotation)
    }
    assert kinds == {"message", "compaction", "advisor_message", "fallback_message"}
