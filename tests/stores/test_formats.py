"""The upgrade path, with an invented format 0 that nobody ever wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolloop.core import events as ev
from toolloop.core.jsontext import decode, encode
from toolloop.core.machine import fold
from toolloop.errors import UnreadableSnapshot
from toolloop.stores import FORMAT, dump, load
from toolloop.stores.codec import digest_of
from toolloop.stores.events import decode_event, encode_event, read_journal
from toolloop.stores.formats import UPGRADES, Upgrade

# As if format 0 had written a JSON text for a result, `Began` for `Opened`, and the loop's id beside the state.
OLD: dict[str, Any] = json.loads((Path(__file__).with_name("format-0-invented.json")).read_text("utf-8"))


def snapshot_of_1(fields: dict[str, Any]) -> dict[str, Any]:
    """From the invented format 0 to format 1."""
    ledger = {**fields["ledger"], "setup": {**fields["ledger"]["setup"], "loop_id": fields["id"]}}
    return {**{name: value for name, value in fields.items() if name != "id"}, "ledger": ledger}


def event_of_1(fields: dict[str, Any]) -> dict[str, Any]:
    """Likewise."""
    if fields["event"] == "Began":
        return {**fields, "event": "Opened"}
    if fields["event"] == "Ended":
        rest = {name: value for name, value in fields.items() if name != "text"}
        return {**rest, "result": {"content": decode(fields["text"])}}
    return fields


TO_1 = {0: Upgrade(snapshot=snapshot_of_1, event=event_of_1)}
BODIES = [encode(body) for body in OLD["journal"]]


def test_there_is_no_older_format_yet() -> None:
    """Format 1 is the first; the next one adds its row, and files of its own."""
    assert (FORMAT, dict(UPGRADES)) == (1, {})


def test_an_old_journal_is_read_through_its_upgrade() -> None:
    """Event by event, each by the format that it was written in."""
    events = [decode_event(body, upgrades=TO_1) for body in BODIES]
    assert [type(event) for event in events[:2]] == [ev.Opened, ev.Requested]
    assert events[4] == ev.Ended("toolu_1", events[4].result, at=104.0)  # type: ignore[attr-defined]  # it is one
    state = read_journal(BODIES, upgrades=TO_1)
    assert state == fold(events)
    mixed = [*BODIES[:3], *(encode_event(event) for event in events[3:])]
    assert read_journal(mixed, upgrades=TO_1) == state


def test_an_old_snapshot_is_read_through_its_upgrade() -> None:
    """It is the state that the journal beside it leads to, and is written as the newest format from then on."""
    state = load(OLD["snapshot"], upgrades=TO_1)
    assert state == read_journal(BODIES, upgrades=TO_1)
    assert load(dump(state)) == state
    adopted = encode({"format": 0, "event": "Adopted", "state": OLD["snapshot"]})
    assert decode_event(adopted, upgrades=TO_1) == ev.Adopted(state)


def test_without_its_upgrade_an_old_format_is_refused_by_name() -> None:
    """And so is one that is older than all that are known."""
    with pytest.raises(UnreadableSnapshot, match="the snapshot has format 0; this version of toolloop reads format 1"):
        load(OLD["snapshot"])
    with pytest.raises(UnreadableSnapshot, match=r"entry 1 of .* format 0"):
        read_journal(BODIES)
    for number in (-1, FORMAT + 1):
        with pytest.raises(UnreadableSnapshot, match=f"format {number}; this version of toolloop reads formats 0 to 1"):
            load(OLD["snapshot"] | {"format": number}, upgrades=TO_1)


def test_damage_is_found_before_an_upgrade() -> None:
    """The digest is over what was written."""
    with pytest.raises(UnreadableSnapshot, match="damaged"):
        load(OLD["snapshot"] | {"id": "another"}, upgrades=TO_1)


def test_an_upgrade_that_does_not_find_its_fields_says_so() -> None:
    """No traceback from below."""
    body = {"state": "Ready"}
    with pytest.raises(UnreadableSnapshot, match="the snapshot of format 0 cannot be read: KeyError: 'ledger'"):
        load({"format": 0, "digest": digest_of(body), **body}, upgrades=TO_1)
    with pytest.raises(UnreadableSnapshot, match="the event of format 0 cannot be read: KeyError: 'text'"):
        decode_event('{"format":0,"event":"Ended"}', upgrades=TO_1)


def test_importing_the_readers_loads_no_cattrs() -> None:
    """It is loaded when it is first needed."""
    code = "import sys, toolloop.stores.events; print('cattrs' in sys.modules or 'pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
