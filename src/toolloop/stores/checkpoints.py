"""Checkpoints: the state of a loop at a revision as bytes, so that the events before it need not be read.

A checkpoint is a cache. It is used only if its digest fits, and if its format, its meaning and its loop are those of
the reader. The reader also asks the store whether the journal has its revision.

It consists of a digest and of texts with NUL between them, which no JSON text contains. The first text has the fields
of the loops without their long lists, and how many texts each list has. A message is one text, as the state holds it,
and so are a long result and a call of a round. The items of the other lists are written 200 at a time: the interpreter
runs no other thread during a call to C.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any, Final

from attrs import frozen

from toolloop._usage import IterationUsage
from toolloop.errors import UnreadableSnapshot
from toolloop.machine.record.loop import Loop, Path, State
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.jsontext import JSON, decode, encode
from toolloop.stores.codec import FORMAT
from toolloop.stores.converter import read, write
from toolloop.stores.revisions import Revision

# A test demands the next number when the recorded journals lead to other states than before, or to the same states
# written in another way. Programs with another meaning keep their own checkpoints.
MEANING: Final = 9

_DIGEST = 16  # bytes
_AT_ONCE = 200  # items
_MEGABYTE = 1_000_000
_ROUNDS = ("round", "closed", "ended_with")  # of a phase


@frozen
class Checkpoint:
    """A state at a revision. `first_id`: the id of the first event of the journal."""

    state: State
    rev: Revision
    first_id: str


def write_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return a checkpoint as bytes.

    Raises:
        ValueError: the state cannot be written.

    """
    texts, counts, bare = list[bytes](), list[list[int]](), dict[Path, Loop]()
    for path, loop in sorted(checkpoint.state.loops.items(), key=lambda item: len(item[0])):
        bare[path] = loop._replace(
            messages=Chain(), results=Chain(), usage_log=Chain(), started=Chain(), said=Chain(), ids=Chain()
        )
    fields = write(State(bare), State)
    loops = [checkpoint.state.loops[path] for path in bare]
    for loop, written in zip(loops, fields["loops"], strict=True):
        lists = [write(each) for each in loop.usage_log], loop.started, loop.said, loop.ids
        rounds = [[*map(encode, round_.pop("calls", ()))] for round_ in _list_rounds(written)]
        parts = [loop.messages, [encode([result]) for result in loop.results], *map(_write_list, lists), *rounds]
        counts.append([*map(len, parts)])
        texts += [text.encode() for part in parts for text in part]
    head = {
        "format": FORMAT,
        "meaning": MEANING,
        "loop_id": checkpoint.state.root.setup.loop_id,
        "rev": [int(checkpoint.rev), checkpoint.rev.digest],
        "first_id": checkpoint.first_id,
        "texts": counts,
        **fields,
    }
    body = b"\0".join([encode(head).encode(), *texts])
    return _digest(body) + body


def read_checkpoint(loop_id: str, body: bytes) -> Checkpoint:
    """Return the checkpoint of a loop.

    Raises:
        UnreadableSnapshot: it is damaged, of another loop, or of another version of toolloop.

    """
    digest, body = body[:_DIGEST], body[_DIGEST:]
    if _digest(body) != digest:
        raise UnreadableSnapshot("its digest does not match its content")
    first, *texts = _split(body)
    try:
        head = decode(first)
        is_ours = [head[name] for name in ("format", "meaning", "loop_id")] == [FORMAT, MEANING, loop_id]
        found = _read(head, texts) if is_ours else None
    except (LookupError, TypeError, ValueError) as error:
        raise UnreadableSnapshot(f"it cannot be read: {type(error).__name__}: {error}") from error
    if found is None:
        raise UnreadableSnapshot("it belongs to another loop, or to another version of toolloop")
    return found


def _read(head: dict[str, JSON], all_texts: Sequence[bytes]) -> Checkpoint:
    if len(all_texts) != sum(map(sum, head["texts"])):
        raise ValueError("it has other texts than it says")
    texts, lists = iter(all_texts), list[dict[str, Chain[Any]]]()
    for fields, counts in zip(head["loops"], head["texts"], strict=True):
        messages, results, usage, started, said, ids, *rounds = counts
        lists.append(
            {
                "messages": Chain(text.decode() for text in islice(texts, messages)),
                "results": Chain(_read_list(islice(texts, results), tuple[str, str])),
                "usage_log": Chain(_read_list(islice(texts, usage), IterationUsage)),
                "started": Chain(_read_list(islice(texts, started), str)),
                "said": Chain(_read_list(islice(texts, said), str)),
                "ids": Chain(_read_list(islice(texts, ids), str)),
            }
        )
        for round_, count in zip(_list_rounds(fields), rounds, strict=True):
            round_["calls"] = [decode(text.decode()) for text in islice(texts, count)]
    bare = read({"loops": head["loops"]}, State, "it")
    loops = {path: loop._replace(**known) for (path, loop), known in zip(bare.loops.items(), lists, strict=True)}
    number, digest = head["rev"]
    if type(number) is not int or not isinstance(digest, str) or not isinstance(head["first_id"], str):
        raise ValueError("its revision is not bound to a journal")
    return Checkpoint(State(loops), Revision(number, digest), head["first_id"])


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST).digest()


def _split(body: bytes) -> Iterator[bytes]:
    """Yield the texts of a body, a megabyte at a time: a single call for all of them would take long."""
    start = 0
    while (end := body.find(b"\0", start + _MEGABYTE)) >= 0:
        yield from body[start:end].split(b"\0")
        start = end + 1
    yield from body[start:].split(b"\0")


def _list_rounds(fields: dict[str, JSON]) -> Iterator[dict[str, JSON]]:
    """Yield the rounds in the written phase of a loop."""
    phase = fields.get("phase", {})
    yield from (phase[name] for name in _ROUNDS if phase.get(name) is not None)


def _write_list(items: Sequence[JSON]) -> list[str]:
    return [encode(items[start : start + _AT_ONCE]) for start in range(0, len(items), _AT_ONCE)]


def _read_list(texts: Iterator[bytes], kind: Any) -> Iterator[Any]:
    for text in texts:
        yield from read(decode(text.decode()), list[kind], "it")
