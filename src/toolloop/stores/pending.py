"""The summary of a call that waits for a decision, which a page can show without reading the journal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache

from attrs import astuple, field, frozen

from toolloop._public import set_module
from toolloop.machine.values.jsontext import JSON, decode, encode
from toolloop.stores.row_checks import check_call, check_named

WHOLE_INPUT = 4000  # characters of an input as JSON; a longer one is shortened
_PREVIEW = 2000  # characters of a preview
_EXCERPT = 300  # characters of a text of the conversation
_SHORT = 4_000  # characters of the waiting calls of a loop that are remembered as values
_VALUE = 200  # characters of a value in a shortened input
_POSITIONS = 10  # of a call in the column `pending`; earlier versions cannot read a longer list


@set_module("toolloop.stores")
@frozen
class PendingCall:
    """The summary of a call that waits for a decision.

    Attributes:
        path: the ids from the outermost call down to this one.
        names: the names of their tools.
        why: why it waits: `approval`, `external` or `uncertain`.
        takes: the decisions that it accepts: `approve`, `deny`, `answer`, `rerun`.
        digest: binds a decision to the current state of the call.
        reason: why a policy asks, or None.
        expires_at: the deadline, in seconds since the epoch, or None.
        input_text: the input as JSON; shortened if it has more than 4,000 characters.
        truncated: whether the input or the preview is shortened.
        preview: a description of the call's effect, or None; at most its first 2,000 characters.
        named: JSON values by name, without those that are empty. Versions add names, so ignore unknown ones:

            - `demands`: what the policies demand, each with `need`, `of`, `not_by`, `fresh`, `reason`, `rule`, and
              `missing`: how many approvals it still needs.
            - `approvals`: the approvals so far of the input that would run, oldest first, each with `kind`, `by`,
              `groups`, `at`, `via`, and `counts`: whether it counts for a demand.
            - `edited`: after an edit by a person: `unjudged` until the policies have judged the edited input, then
              `judged`.
            - `remind_after`: after how many seconds of waiting to remind of it, in order.
            - `since`: when it began to wait, in seconds since the epoch.
            - `size`: the number of characters of the input as JSON, if `input_text` is shortened.
            - `asked`, `said`: the beginning of the user's last message, and of the text of the reply with the call.
            - `usage`: the tokens of the loop, including nested loops, named as in `Usage`: `input_tokens`,
              `total_input_tokens`, `output_tokens` and `total_tokens`.
            - `cost`: what the loop has cost, if prices were set: `dollars` as a decimal text, and `is_partial`.
            - `secret`: the parameters whose values are hidden in `input_text`.

    """

    path: tuple[str, ...]
    names: tuple[str, ...]
    why: str
    takes: tuple[str, ...]
    digest: str
    reason: str | None = None
    expires_at: float | None = None
    input_text: str = "{}"
    truncated: bool = False
    preview: str | None = None
    named: Mapping[str, JSON] = field(factory=dict, hash=False)

    @property
    def id(self) -> str:
        """The id of the `tool_use` block."""
        return self.path[-1]

    @property
    def name(self) -> str:
        """The name of its tool."""
        return self.names[-1]

    @property
    def input(self) -> dict[str, JSON]:
        """A copy of the input. In a shortened one, a long value is cut to the beginning of its text."""
        value: dict[str, JSON] = decode(self.input_text)
        return value

    # Made once: each decision writes the rows of all other calls again.

    @cached_property
    def _positions(self) -> str:
        return json.dumps(astuple(self, recurse=False)[:_POSITIONS], separators=(",", ":"))

    @cached_property
    def _named(self) -> str:
        return f"{json.dumps(self.digest)}:{json.dumps(dict(self.named), separators=(',', ':'))}"


def preview_of(text: str | None) -> tuple[str | None, bool]:
    """Return a preview of limited size, and whether it was shortened."""
    if text is None or len(text) <= _PREVIEW:
        return text, False
    return f"{text[:_PREVIEW]}…", True


def excerpt_of(text: str | None) -> str | None:
    """Return the beginning of a text of the conversation; None if there is none."""
    text = (text or "").strip()
    return (text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…") or None


def shorten_input(text: str) -> tuple[str, bool]:
    """Return an input as JSON of limited size, and whether it was shortened.

    Long values are cut to the beginning of their text. The last members are left out if the rest is still too long.
    """
    if len(text) <= WHOLE_INPUT:
        return text, False
    short: dict[str, JSON] = {}
    fields: Mapping[str, JSON] = decode(text)
    for key, value in fields.items():
        shown = value if isinstance(value, str) else encode(value)
        short[_cut(key)] = _cut(shown) if len(shown) > _VALUE else value
        if len(encode(short)) > WHOLE_INPUT:
            break
    return encode(short), True


def _cut(text: str) -> str:
    return text if len(text) <= _VALUE else f"{text[:_VALUE]}…"


def pending_to_json(pending: Iterable[PendingCall]) -> str:
    """Return calls as ASCII JSON: a list for each call, with its fields in order, without `named`."""
    return f"[{','.join([each._positions for each in pending])}]"  # noqa: SLF001 - it is for this function


def pending_from_json(text: str, named: str | None = None) -> tuple[PendingCall, ...]:
    """Return the calls of a text that `pending_to_json` returned. They are shared if the texts are short.

    Args:
        text: the text.
        named: their `named`, as a text that `named_to_json` returned. An earlier version writes calls and leaves this
            text as it is, so what belongs to other calls is ignored.

    Raises:
        TypeError, ValueError: a text is damaged.

    """
    is_short = len(text) + len(named or "") <= _SHORT
    return _read_again(text, named) if is_short else _read(text, named)


def _read(text: str, named: str | None) -> tuple[PendingCall, ...]:
    if text == "[]":
        return ()
    found, calls = {} if named is None else check_named(decode(named)), decode(text)
    if not isinstance(calls, list):
        raise ValueError("its waiting calls are not a list")  # noqa: TRY004 - the content of a text
    return tuple(
        [
            PendingCall(tuple(path), tuple(names), why, tuple(takes), digest, *more, named=found.get(digest, {}))  # type: ignore[misc]  # `more` has at most five values
            for path, names, why, takes, digest, *more in map(check_call, calls)
        ]
    )


_read_again = lru_cache(maxsize=1024)(_read)  # a queue reads all its rows after each change of one


def named_to_json(pending: Iterable[PendingCall]) -> str | None:
    """Return `named` of calls as ASCII JSON, by the digests of the calls; None if all are empty."""
    named = [each._named for each in pending if each.named]  # noqa: SLF001 - likewise
    return f"{{{','.join(named)}}}" if named else None
