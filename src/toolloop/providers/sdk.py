"""Replies as objects of the SDK, for those who want attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolloop.core.jsontext import JSON

if TYPE_CHECKING:
    from anthropic.types.beta import BetaMessage


def as_sdk(reply: Mapping[str, JSON]) -> BetaMessage:
    """A reply, such as `Completed.response`, as the SDK's message object. Unknown blocks are kept; dispatch on `.type`.

    Source: anthropic-sdk 2.11; `construct` does not validate, so that a block newer than the SDK passes.
    """
    from anthropic.types.beta import BetaMessage  # noqa: PLC0415 - the SDK is loaded when it is first needed

    return BetaMessage.construct(**reply)
