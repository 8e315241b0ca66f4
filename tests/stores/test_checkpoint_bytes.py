"""A checkpoint as bytes: any damage is noticed, and no call to C takes long for it."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, get_origin, get_type_hints

import pytest

from tests.kit.world import ID, World
from toolloop import MemoryStore
from toolloop._usage import IterationUsage
from toolloop.errors import UnreadableSnapshot
from toolloop.machine import State
from toolloop.machine.record.loop import Loop, Round, Waiting
from toolloop.machine.record.round_calls import RoundCalls
from toolloop.machine.values.calls import Call
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.jsontext import decode, encode
from toolloop.stores import Revision, read_journal
from toolloop.stores.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from toolloop.testing import call, reply


def make_ended_state() -> State:
    """The state of a loop with one call."""
    script = (reply(calls=[call("look", {"path": "a.txt"}, id="t1")]), reply("done"))
    world = World("sync", MemoryStore(), script=script)
    assert world.drive().unwrap().text == "done"
    return read_journal(world.store.load(ID).entries)


def test_each_changed_byte_is_noticed() -> None:
    """And each byte that is cut off."""
    state = make_ended_state()
    body = write_checkpoint(Checkpoint(state, Revision(7, "ab"), "first"))
    assert read_checkpoint(ID, body) == Checkpoint(state, Revision(7, "ab"), "first")
    for at in range(len(body)):
        for changed in (body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :], body[:at], body[:at] + body[at + 1 :]):
            with pytest.raises(UnreadableSnapshot):
                read_checkpoint(ID, changed)


def test_each_missing_field_is_noticed() -> None:
    """Also where the digest is right: as of a program that wrote less."""
    body = write_checkpoint(Checkpoint(make_ended_state(), Revision(7, "ab"), "first"))
    head, *texts = body[16:].split(b"\0")
    fields: Mapping[str, Any] = decode(head)
    assert len(fields) == 7
    for name in fields:
        left = {key: value for key, value in fields.items() if key != name}
        changed = b"\0".join([encode(left).encode(), *texts])
        with pytest.raises(UnreadableSnapshot):
            read_checkpoint(ID, blake2b(changed, digest_size=16).digest() + changed)
    for wrong in ({"rev": [7, None]}, {"rev": ["7", "ab"]}, {"rev": [7]}, {"first_id": None}):  # it fits any journal
        changed = b"\0".join([encode({**fields, **wrong}).encode(), *texts])
        with pytest.raises(UnreadableSnapshot):
            read_checkpoint(ID, blake2b(changed, digest_size=16).digest() + changed)
    for changed in (b"", b"[]", b"7", b"no JSON", b"\0".join([head, *texts[1:]]), b"\0".join([head, *texts, b"{}"])):
        with pytest.raises(UnreadableSnapshot):
            read_checkpoint(ID, blake2b(changed, digest_size=16).digest() + changed)


def test_each_long_list_is_written_in_pieces() -> None:
    """So that no single call to C takes long: a new list of a loop must be one of them."""
    chains = {name for name, hint in get_type_hints(Loop).items() if get_origin(hint) is Chain}
    state = make_ended_state()
    count = 1000
    filled: dict[str, Any] = dict.fromkeys(chains, Chain(["{}"] * count)) | {
        "usage_log": Chain([IterationUsage(1)] * count),
        "results": Chain([("a", "b")] * count),
    }
    calls = RoundCalls(Call(f"c{number}", "look", "{}") for number in range(count))
    filled["phase"] = Waiting("tools_executed", closed=Round(1, None, calls))
    checkpoint = Checkpoint(State({(): state.root._replace(**filled)}), Revision(7, "ab"), "first")
    body = write_checkpoint(checkpoint)
    head, *texts = body[16:].split(b"\0")
    assert len(head) < 3000
    assert max(map(len, texts)) < 4000
    # A message, a long result and a call are one text each. The others are written 200 at a time.
    assert len(texts) == count * 3 + (len(chains) - 2) * count // 200
    assert read_checkpoint(ID, body) == checkpoint


def test_a_large_body_is_split_as_a_small_one() -> None:
    """It is split a megabyte at a time."""
    state = make_ended_state()
    for sizes in ([3_000_000], [999_999, 10, 1_000_001], [400_000] * 7, [1] * 5):
        root = state.root._replace(messages=Chain([f'"{"x" * size}"' for size in sizes]))
        checkpoint = Checkpoint(State({(): root}), Revision(7, "ab"), "first")
        assert read_checkpoint(ID, write_checkpoint(checkpoint)) == checkpoint
