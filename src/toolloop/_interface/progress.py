"""What a driver does now: the calls that run, and the reply that streams. It is kept as JSON beside the lease."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from attrs import frozen

from toolloop._interface.calls import RunningCall
from toolloop.machine.queries import list_running
from toolloop.machine.record.loop import State
from toolloop.machine.values.jsontext import make_well_formed

_MOST = 500  # characters of a message
_GREATEST = 2**53


@frozen
class Progress:
    """What a driver does now.

    Attributes:
        running: the calls that run.
        text: the text so far of the reply that streams, if the driver shows it; else None.

    """

    running: tuple[RunningCall, ...] = ()
    text: str | None = None

    def to_json(self) -> str | None:
        """Return it as JSON; None if there is nothing to show."""
        if not self.running and self.text is None:
            return None
        text = None if self.text is None else make_well_formed(self.text)
        return json.dumps({"running": [*map(_to_json, self.running)], "text": text})

    @classmethod
    def of(cls, text: str | None) -> Progress:
        """Return the progress of a JSON text. What cannot be read, such as that of a newer version, is left out."""
        try:
            value = json.loads(text or "{}")
            return cls(tuple(map(_from_json, value.get("running", ()))), value.get("text"))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            return cls()


def list_running_calls(state: State, known: Sequence[RunningCall]) -> tuple[RunningCall, ...]:
    """Return the calls that run by the state of a loop, each with what is known of it."""
    found = {call.id: call for call in known}
    ids = [("/".join((*path, call.id)), call.name) for path, call in list_running(state)]
    return tuple(found.get(id_) or RunningCall(id_, name, None) for id_, name in ids)


def _to_json(call: RunningCall) -> dict[str, Any]:
    since = None if call.since is None else round(call.since.timestamp(), 3)
    message = None if call.message is None else make_well_formed(call.message[:_MOST])
    numbers = {name: _read_number(getattr(call, name)) for name in ("progress", "total")}
    return {"id": call.id, "name": call.name, "since": since, "message": message, **numbers}


def _from_json(value: dict[str, Any]) -> RunningCall:
    since = None if value["since"] is None else datetime.fromtimestamp(value["since"], UTC)
    return RunningCall(value["id"], value["name"], since, value["message"], value["progress"], value["total"])


def _read_number(value: object) -> float | None:
    """Return a number that a tool reported; None if JSON has no such number."""
    return value if isinstance(value, (int, float)) and abs(value) <= _GREATEST else None
