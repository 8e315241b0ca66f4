"""What an inbox shows: calls that wait, a page of them, a loop, and who decided what."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from math import inf
from operator import itemgetter
from typing import overload

from attrs import field, frozen

from toolloop.face.loop_view import LoopView
from toolloop.machine.jsontext import JSON
from toolloop.stores.pending import PendingCall
from toolloop.stores.protocol import StoredLoop

_ID_LENGTH = 32  # characters
_Place = tuple[float, float, str, tuple[str, ...]]


class ShownLoop(LoopView):
    """A loop as JSON, for a page: a `LoopView`, and what only the store and the journal know.

    Attributes:
        messages: the conversation as far as it went: the history, then messages that have not joined it yet.
        metadata: what its creator gave.
        created: when it was created, a time by ISO 8601.
        schemas: the JSON Schemas of the tools of the calls that wait, by the path of the call joined with "/". A tool
            that only the API knows has none.

    """

    messages: list[JSON]
    metadata: dict[str, str]
    created: str
    schemas: dict[str, JSON]


@frozen
class InboxCall:
    """A call that waits for a decision. It is a key of `Inbox.decide`, and binds the decision to what is shown here.

    Attributes:
        loop_id: of its loop.
        path: the ids from the outermost call down to this one.
        names: of their tools.
        why: what it waits for: `approval`, `external` or `uncertain`.
        takes: the decisions that it takes: `approve`, `deny`, `answer`, `rerun`.
        digest: binds a decision to it.
        reason: why a policy asks, if it said so.
        expires_at: when it expires, an aware UTC time; None: never.
        input: the input; above 1,000 characters as JSON it is shortened.
        truncated: whether the input or the preview is shortened.
        metadata: what the creator of the loop gave.
        notification_id: names this wait of the call. It is another one once the call waits for something else.
        preview: what the call would do, as the `preview` of its tool said, or None; above 2,000 characters its
            beginning.

    """

    loop_id: str
    path: tuple[str, ...]
    names: tuple[str, ...]
    why: str
    takes: tuple[str, ...]
    digest: str
    reason: str | None
    expires_at: datetime | None
    input: dict[str, JSON] = field(eq=False)
    truncated: bool
    metadata: Mapping[str, str] = field(eq=False)
    notification_id: str
    preview: str | None = field(default=None, eq=False)

    @classmethod
    def of(cls, loop: StoredLoop, call: PendingCall) -> InboxCall:
        """Return a call of a loop."""
        expires_at = None if call.expires_at is None else datetime.fromtimestamp(call.expires_at, UTC)
        parts = (call.path, call.names, call.why, call.takes, call.digest, call.reason)
        wait = notification_id(loop, call)
        return cls(loop.loop_id, *parts, expires_at, call.input, call.truncated, loop.metadata, wait, call.preview)

    @property
    def id(self) -> str:
        """The id of the `tool_use` block."""
        return self.path[-1]

    @property
    def name(self) -> str:
        """The name of its tool."""
        return self.names[-1]


def notification_id(loop: StoredLoop, call: PendingCall) -> str:
    """Return the name of a wait of a call."""
    # The digest says how often the call was started; a loop that was created again may have the same calls.
    return sha256(f"{loop.created} {call.why} {call.digest}".encode()).hexdigest()[:_ID_LENGTH]


class InboxPage(Sequence[InboxCall]):
    """Some of the calls that wait.

    Attributes:
        cursor: gives the page after this one; None: this is the last one.

    """

    def __init__(self, loops: Iterable[StoredLoop], now: float, limit: int, cursor: str | None) -> None:
        """Take the first calls of loops behind a cursor: the earliest deadline first, then those of the oldest loop."""
        after = None if cursor is None else _from_cursor(cursor)
        places = [(_place(loop, call), loop, call) for loop in loops for call in loop.pending]
        found = [each for each in places if each[0][0] > now and (after is None or each[0] > after)]
        found.sort(key=itemgetter(0))
        self._calls = tuple(InboxCall.of(loop, call) for _, loop, call in found[:limit])
        self.cursor = _to_cursor(found[limit - 1][0]) if len(found) > limit else None

    @overload
    def __getitem__(self, index: int) -> InboxCall: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[InboxCall]: ...
    def __getitem__(self, index: int | slice) -> InboxCall | Sequence[InboxCall]:
        return self._calls[index]

    def __len__(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        return f"<InboxPage of {len(self)} calls>"


def _place(loop: StoredLoop, call: PendingCall) -> _Place:
    return (inf if call.expires_at is None else call.expires_at, loop.created, loop.loop_id, call.path)


def _to_cursor(place: _Place) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _from_cursor(cursor: str) -> _Place:
    try:
        expires_at, created, loop_id, path = json.loads(base64.urlsafe_b64decode(cursor))
        return float(expires_at), float(created), str(loop_id), tuple(map(str, path))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"cursor is {cursor[:80]!r}; give the `cursor` of a page that pending() returned") from error


@frozen
class HistoryEntry:
    """Something that a person said about a loop, or a policy decided.

    Attributes:
        kind: `approve`, `deny`, `answer`, `rerun`, `stop`, `say`, `retry` or `revoke`.
        at: when, an aware UTC time.
        by: who, as far as that is known.
        reason: why, if they said so.
        path: of the call that was decided; empty for anything else.
        name: of its tool.
        input: as the model proposed it.
        content: the edited input, the answer, or the messages; None if there is none.
        by_policy: a policy decided.

    """

    kind: str
    at: datetime
    by: str | None = None
    reason: str | None = None
    path: tuple[str, ...] = ()
    name: str | None = None
    input: JSON = None
    content: JSON = None
    by_policy: bool = False
