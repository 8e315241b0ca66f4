"""The parameters of `messages.create` that travel beside the body, not in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# All of anthropic-sdk 2.11 and 2.12, for `messages.create` and `beta.messages.create`; a test compares.
OPTION_NAMES = frozenset(
    {"betas", "extra_body", "extra_headers", "extra_query", "timeout", "user_profile_id", "workspace_id"}
)

# Never stored: headers and queries may hold keys, and a timeout may be an object of the HTTP library. They come back
# through the parameters given at `restore`.
SECRET_OPTIONS = frozenset({"extra_headers", "extra_query", "timeout"})


def given(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters without those whose value says "not given", as `anthropic.NOT_GIVEN` and `anthropic.omit` do.

    Only the top level is looked at: inside `extra_headers` an `omit` takes a header away, and must stay.
    """
    return {name: value for name, value in params.items() if not _stands_for_nothing(value)}


def _stands_for_nothing(value: object) -> bool:
    # By name: the SDK must not be imported for a comparison.
    kind = type(value)
    return kind.__name__ in {"NotGiven", "Omit"} and kind.__module__.split(".", 1)[0] == "anthropic"
