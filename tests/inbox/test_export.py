"""The audit trail as a file: what it holds, and that each change of it is found and named."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given, strategies as st

from tests.inbox.support import PAY, SEND, desk
from tests.kit.each import each
from tests.kit.effort import examples
from tests.kit.world import START, World, each_store
from toolloop import Approve, Deny, Grant, Person
from toolloop.errors import LoopNotFound
from toolloop.inbox import export_trail, verify_trail
from toolloop.inbox.export.writing import next_digest
from toolloop.rules import Rules
from toolloop.testing import call, reply

RULES = [{"name": "large", "do": "ask", "tool": "pay", "match": {"euros": {"above": 6}}, "need": 2, "of": "finance"}]
AGAIN = call("pay", {"to": "cy", "euros": 1}, id="c3")
FAY, FRED = Person("fay", "finance"), Person("fred", ["finance", "board"])


def decided(where: str, folder: Path) -> World:
    """A loop with a payment that two persons approved, and one that a person denied."""
    found = desk(where, folder, config={"on_tool_call": Rules(RULES)})
    found.drive(metadata={"owner": "ana"})
    small, large = sorted(found.inbox.pending(), key=lambda each: each.id)
    found.inbox.decide("loop", {small: Deny("Not today.\u2028 Grüße", by="sue")})
    for person in (FAY, FRED):
        (large,) = found.inbox.pending()
        found.inbox.decide("loop", {large: Approve(by=person)})
    found.drive()
    return found


def private_pem(key: Any, password: bytes | None = None) -> bytes:
    how = NoEncryption() if password is None else BestAvailableEncryption(password)
    return bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))


def public_pem(key: Any) -> bytes:
    return bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


KEY = Ed25519PrivateKey.generate()


@cache
def signed() -> bytes:
    """A signed file."""
    return export_trail(decided("memory", Path()).store, "loop", key=private_pem(KEY)).encode()


@each_store
def test_an_exported_trail_has_what_an_auditor_asks_for(where: str, tmp_path: Path) -> None:
    """Who decided what, with which groups, where, under which rule of which file, and the version of the program."""
    found = decided(where, tmp_path)
    text = export_trail(found.store, "loop")
    begin, deny, first, second, end = map(json.loads, text.split("\n")[:-1])
    row = found.store.head("loop")
    assert (begin["kind"], begin["format"], begin["toolloop"]) == ("begin", 1, version("toolloop"))
    assert (begin["loop_id"], begin["metadata"]) == ("loop", {"owner": "ana"})
    assert (begin["revision"], begin["revision_digest"]) == (int(row.rev), getattr(row.rev, "digest", None))
    assert (deny["kind"], deny["by"], deny["via"], deny["path"]) == ("deny", "sue", "inbox", ["c1"])
    assert (deny["reason"], deny["outcome"]) == ("Not today.\u2028 Grüße", "denied")
    assert [(each["by"], each["groups"], each["missing"]) for each in (first, second)] == [
        ("fay", ["finance"], 1),
        ("fred", ["finance", "board"], 0),
    ]
    assert len(second["digest"]) == 64
    digest = Rules(RULES).digest
    assert [(each["rule"], each["rule_digest"], each["need"]) for each in second["demands"]] == [("large", digest, 2)]
    assert (end["kind"], end["entries"]) == ("end", 3)
    assert verify_trail(text.encode()) is None


def test_the_trail_has_each_grant_and_each_call_that_ran_by_one(tmp_path: Path) -> None:
    """Who gave it, for which calls; that a call ran by it, what came of it; and who revoked it. Each has its digest."""
    found = desk("memory", tmp_path, script=(reply(calls=[PAY, SEND]), reply(calls=[AGAIN]), reply("Paid.")))
    found.drive()
    first, second = sorted(found.inbox.pending(), key=lambda each: each.id)
    grant = Grant(match={"to": "*"}, uses=2, expires_at=datetime.fromtimestamp(START + 60, UTC))
    found.inbox.decide("loop", {"c1": Approve(by=FAY, remember=grant), "c2": Deny("no", by="sue")})
    found.drive()
    (standing,) = found.inbox.grants("loop")
    found.inbox.revoke("loop", standing, by="fred")
    text = export_trail(found.store, "loop")
    approve, deny, used, revoke = map(json.loads, text.split("\n")[1:-2])
    expires_at = "2027-01-15T08:01:00+00:00"
    assert approve["remember"] == {"tool": "pay", "match": {"to": "*"}, "uses": 2, "expires_at": expires_at}
    assert (approve["digest"], deny["digest"]) == (first.digest, second.digest)  # they were decided by their ids
    assert (used["kind"], used["by"], used["groups"], used["path"]) == ("grant", "fay", ["finance"], ["c3"])
    assert (used["input"], used["outcome"], len(used["digest"])) == ({"to": "cy", "euros": 1}, "returned", 64)
    assert (revoke["kind"], revoke["by"]) == ("revoke", "fred")
    assert [each["grant"] for each in (approve, used, revoke)] == [standing.id] * 3
    assert verify_trail(text.encode()) is None


def test_each_line_has_the_digest_of_its_text_after_the_digest_before_it() -> None:
    """So that other programs can verify it, too."""
    before = ""
    for line in signed().decode().split("\n")[:-1]:
        body, _, digest = line.removesuffix('"}').rpartition(',"chain":"')
        assert digest == sha256(f"{before}{body}}}".encode()).hexdigest()
        before = digest


@given(st.data())
@examples(150)
def test_each_change_of_a_byte_is_named(data: st.DataObject) -> None:
    """By the line that it is in. Some changes join two lines."""
    whole = signed()
    place = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[place]))
    changed = whole[:place] + bytes([byte]) + whole[place + 1 :]
    number = whole.count(b"\n", 0, place) + 1
    assert (verify_trail(changed) or "").startswith(f"line {number}: ")


@given(st.data())
@examples(50)
def test_removed_moved_added_and_cut_lines_are_named(data: st.DataObject) -> None:
    """By the first line that does not fit."""
    lines = signed().splitlines(keepends=True)
    one, other = sorted(data.draw(st.lists(st.integers(0, len(lines) - 1), min_size=2, max_size=2, unique=True)))
    swapped = [*lines]
    swapped[one], swapped[other] = lines[other], lines[one]
    for changed in ([*lines[:one], *lines[one + 1 :]], swapped, [*lines[:one], lines[other], *lines[one:]]):
        assert (verify_trail(b"".join(changed)) or "").startswith(f"line {one + 1}: ")
    place = data.draw(st.integers(0, len(signed()) - 1))
    cut = signed()[:place]
    number = cut.count(b"\n") + 1
    assert (verify_trail(cut) or "").startswith(f"line {number}: ")


@each(("changed", "problem"), [
    (b"", "line 1: the end of the file is missing"),
    (b"nothing\n", "line 1: it was changed, or a line before it was removed, added or moved"),
])  # fmt: skip
def test_other_files_do_not_fit(changed: bytes, problem: str) -> None:
    """Also an empty one."""
    assert verify_trail(changed) == problem


def rechained(values: list[Any]) -> bytes:
    """A file that a person changed, with digests that fit."""
    lines, before = [], ""
    for value in values:
        body = json.dumps(value, ensure_ascii=False, separators=(",", ":")) if isinstance(value, dict) else value
        before = sha256(f"{before}{body}".encode()).hexdigest()
        lines.append(f'{body[:-1]},"chain":"{before}"}}\n')
    return "".join(lines).encode()


def test_only_a_signature_finds_a_change_with_fitting_digests() -> None:
    """Of an entry, or of the end."""
    values = [json.loads(line) for line in signed().splitlines()]
    for value in values:
        del value["chain"]
    assert rechained(values) == signed()
    values[1]["by"] = "ana"
    assert verify_trail(rechained(values)) is None
    problem = "line 5: the signature is not of this key, or the file was changed"
    assert verify_trail(rechained(values), public_key=public_pem(KEY)) == problem
    values[-1]["signature"] = "?"
    assert verify_trail(rechained(values), public_key=public_pem(KEY)) == problem
    del values[-1]["signature"]
    assert verify_trail(rechained(values), public_key=public_pem(KEY)) == "line 5: the file is not signed"
    assert verify_trail(rechained([*values[:2], values[-1]])) == "line 3: it ends another file"
    assert verify_trail(rechained([{**values[0], "format": 2}])) == "line 1: its format is 2; this version reads 1"
    assert verify_trail(rechained(values[1:])) == "line 1: the file does not begin here"
    assert verify_trail(rechained([values[0], *values])) == "line 2: the file does not begin here"
    assert verify_trail(rechained([*values, values[1]])) == "line 6: it follows the end"
    assert verify_trail(rechained([values[0], "{]}"])) == "line 3: the end of the file is missing"


def test_a_line_that_is_written_in_another_way_does_not_fit() -> None:
    """Though its digest fits: with a doubled key, blanks or escapes, a reader might take another value from it."""
    lines = signed().split(b"\n")
    before = lines[-3].rpartition(b'"chain":"')[2][:64].decode()
    body = lines[-2].rpartition(b',"chain"')[0] + b"}"
    for changed in (
        body.replace(b'"entries":', b'"entries":999,"entries":'),
        body.replace(b'"kind":', b'"kind":{"note":"approved"},"kind":'),
        body.replace(b'"kind"', b'"k\\u0069nd"'),
        body.replace(b":", b": ", 1),
        b"[" * 100_000,
    ):
        line = changed[:-1] + f',"chain":"{next_digest(before, changed)}"}}'.encode()
        assert verify_trail(b"\n".join([*lines[:-2], line, b""]), public_key=public_pem(KEY)) is not None


def test_a_signature_is_of_one_key() -> None:
    """A trail that is signed verifies with its key alone; one without a signature with none."""
    assert verify_trail(signed(), public_key=public_pem(KEY)) is None
    assert verify_trail(signed()) is None
    other = public_pem(Ed25519PrivateKey.generate())
    assert verify_trail(signed(), public_key=other) == (
        "line 5: the signature is not of this key, or the file was changed"
    )


def test_wrong_keys_are_refused() -> None:
    """Another kind of key, one with a password, or something else."""
    store, curve = decided("memory", Path()).store, generate_private_key(SECP256R1())
    wrong = (b"no key", private_pem(KEY, b"secret"), private_pem(curve), public_pem(KEY))
    for key in wrong:
        with pytest.raises(ValueError, match="the key: expected a private Ed25519 key"):
            export_trail(store, "loop", key=key)
    for key in (b"no key", public_pem(curve), private_pem(KEY)):
        with pytest.raises(ValueError, match="the public key: expected a public Ed25519 key"):
            verify_trail(signed(), public_key=key)
    with pytest.raises(LoopNotFound):
        export_trail(store, "another")
