"""Message threads: the server holds a conversation, and a request has only new messages (source: rule 38)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from toolloop.machine.record.loop import Thread
from toolloop.machine.values.jsontext import JSON, encode

THREADS_BETA = "message-threads-2026-08-12"
_HEADER = "anthropic-beta"
_NOT_FOUND, _MISMATCH, _UNSUPPORTED = "thread_not_found", "thread_fingerprint_mismatch", "thread_unsupported_request"
# After these errors, the server accepts the whole history (anthropic-sdk 2.12, `types/thread_*_error_details.py`).
_REFUSALS = frozenset(
    {
        _NOT_FOUND,
        _MISMATCH,
        _UNSUPPORTED,
        "thread_already_continued",
        "thread_continue_in_flight",
    }
)
# If a replaced thread is refused again for one of these reasons before it is continued, the next one would be, too: the
# server keeps no threads, or each request differs in a value that a thread freezes.
_REPEATED = frozenset({_NOT_FOUND, _MISMATCH})
_NOTHING = Thread(None, 0, "")  # no conversation has this fingerprint


def conversation_fingerprint(before: str, text: str) -> str:
    """Return the fingerprint of a conversation with one more message. `before` is the fingerprint without it."""
    digest = hashlib.blake2b(before.encode(), digest_size=16)
    digest.update(text.encode())
    return digest.hexdigest()


@frozen
class ThreadedRequest:
    """A request that continues or creates a thread.

    Attributes:
        known: the thread as the loop knew it before the request.
        continues: whether the request continues that thread; else it creates one.
        head: the fingerprint of the parameters that a thread freezes.
        sent: the number of messages in the conversation, including this request.
        fingerprint: the fingerprint of the conversation, including this request.

    """

    known: Thread | None
    continues: bool
    head: str
    sent: int
    fingerprint: str

    @classmethod
    def of(cls, known: Thread | None, prefixes: Sequence[str]) -> ThreadedRequest | None:
        """Make the request for a conversation; None if the conversation is sent without a thread.

        Args:
            known: the thread that the server holds.
            prefixes: the fingerprints of the conversation, before its first message and after each message.

        """
        holds = known is not None and prefixes[known.covers : known.covers + 1] == [known.fingerprint]
        if holds and known is not None and known.message_id is None:
            return None
        return cls(known, holds, prefixes[0], len(prefixes) - 1, prefixes[-1])

    @property
    def starts_at(self) -> int:
        """The index of the first message to send."""
        return self.known.covers if self.known is not None and self.continues else 0

    def field(self) -> dict[str, JSON]:
        """Return the parameter `thread`."""
        if self.known is None or not self.continues:
            return {"type": "create"}
        return {"type": "continue", "previous_message_id": self.known.message_id}

    def answered(self, reply: Mapping[str, JSON]) -> Thread:
        """Return the thread after a reply: the messages that were sent, and the reply as received.

        The server does not store replies of a fallback model (source: `record_reply` of the threads of anthropic 2.12).
        """
        usage = reply.get("usage")
        steps = (usage.get("iterations") if isinstance(usage, Mapping) else None) or ()
        fell_back = any(isinstance(step, Mapping) and step.get("type") == "fallback_message" for step in steps)
        if fell_back or not isinstance(message_id := reply.get("id"), str):
            return _NOTHING
        text = encode({"role": "assistant", "content": reply.get("content")})
        refused = self.known.refused if self.known is not None and not self.continues else None
        return Thread(message_id, self.sent + 1, conversation_fingerprint(self.fingerprint, text), refused)

    def refused(self, error: BaseException | None) -> Thread | None:
        """Return the thread after an error; None if the error does not refuse the thread.

        If a new thread is also refused, the conversation is sent without one until the frozen parameters change.
        """
        code = _code_of(error)
        if code not in _REFUSALS:
            return None
        again = code in _REPEATED and self.known is not None and self.known.refused == code
        is_last = code == _UNSUPPORTED or again or not self.continues
        return Thread(None, 0, self.head if is_last else "", code)


def betas_of(options: Mapping[str, Any]) -> list[str]:
    """Return the betas of a request with these options."""
    return _betas(options)[1]


def with_beta(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a request with the beta for threads after the caller's betas."""
    header, given = _betas(options)
    betas = given if THREADS_BETA in given else [*given, THREADS_BETA]
    if header is None:
        return {**options, "betas": betas}
    return {**options, "extra_headers": {**options["extra_headers"], header: ",".join(betas)}}


def _betas(options: Mapping[str, Any]) -> tuple[str | None, list[str]]:
    """Return the name of a header that replaces `betas`, if there is one, and the betas. `omit` removes all betas."""
    for name, value in (options.get("extra_headers") or {}).items():
        if name.lower() == _HEADER:
            return name, [beta.strip() for beta in value.split(",")] if isinstance(value, str) else []
    return None, [str(beta) for beta in options.get("betas") or ()]


def sets_betas(client: Any) -> bool:
    """Return whether a client sends betas with each request; the betas of a request would replace them."""
    return any(name.lower() == _HEADER for name in client.default_headers)


def _code_of(error: BaseException | None) -> str | None:
    """Return the API's `error_code` of an exception or its cause."""
    found: Any = getattr(error, "body", None) or getattr(error.__cause__, "body", None) if error else None
    for name in ("error", "details", "error_code"):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, str) else None
