"""The conversations that the fake API keeps from one request to the next (messages-api.md, rule 38)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import frozen

from toolloop.providers.message_threads import THREADS_BETA
from toolloop.testing.api.api_refusals import Refusal

Body = dict[str, Any]

#: Called for each request of a thread: returns the `error_code` to refuse it with, or None.
RefuseThread = Callable[[Body], str | None]

_FROZEN = ("system", "tools")  # allowed only in the request that creates a thread
_UNSUPPORTED = ("cache_control", "context_management", "fallbacks")


@frozen
class _Held:
    """A conversation up to a reply, with the parameters that the thread freezes."""

    frozen: Body
    fixed: tuple[Any, frozenset[str]]
    messages: list[Any]


class Threads:
    """Keeps conversations by the ids of their last replies. Each can be continued once."""

    def __init__(self, refuse: RefuseThread | None) -> None:
        """Start without conversations."""
        self._refuse = refuse
        self._held: dict[str, _Held | None] = {}  # None: already continued
        self._in_flight: dict[str, Body] = {}  # the request that continues each conversation now

    def forget(self) -> None:
        """Lose every conversation."""
        self._held.clear()

    def enter(self, body: Any, betas: frozenset[str]) -> tuple[Any, Refusal | None]:
        """Return the request as the model sees it, with the kept messages before its own; or why it is refused."""
        if not isinstance(body, dict) or not isinstance(body.get("thread"), dict):
            return body, None
        last = _continued(body)
        refusal = self._refusal(body, last, betas)
        if refusal or last is None or (held := self._held.get(last)) is None:
            return body, refusal
        self._in_flight[last] = body
        return {**body, **held.frozen, "messages": [*held.messages, *body.get("messages", ())]}, None

    def _refusal(self, body: Body, last: str | None, betas: frozenset[str]) -> Refusal | None:
        code = self._refuse(body) if self._refuse else None
        if code is None and any(body.get(name) for name in _UNSUPPORTED):
            code = "thread_unsupported_request"
        if code is None and last is not None:
            if given := [name for name in _FROZEN if name in body]:
                return Refusal(f"{given[0]}: cannot be given when a thread is continued")
            code = self._why_not_continued(body, last, betas)
        if code is None:
            return None
        is_gone = code == "thread_not_found"
        kind = "not_found_error" if is_gone else "invalid_request_error"
        return Refusal(f"thread: {code}", 404 if is_gone else 400, kind, error_code=code)

    def _why_not_continued(self, body: Body, last: str, betas: frozenset[str]) -> str | None:
        if last in self._in_flight:
            return "thread_continue_in_flight"
        if last not in self._held:
            return "thread_not_found"
        if (held := self._held[last]) is None:
            return "thread_already_continued"
        return None if held.fixed == _fixed(body, betas) else "thread_fingerprint_mismatch"

    def leave(self, body: Any) -> None:
        """Record that a request was answered. It ends the continuation only if it began it."""
        last = _continued(body)
        if last is not None and self._in_flight.get(last) is body:
            del self._in_flight[last]

    def keep(self, whole: Any, betas: frozenset[str], message: Body) -> None:
        """Keep the conversation of an answered request, unless its reply is a refusal or written by a fallback."""
        if not whole.get("thread"):
            return
        if (last := _continued(whole)) is not None:
            self._held[last] = None
        steps = (message.get("usage") or {}).get("iterations") or ()
        if message["stop_reason"] == "refusal" or any(step["type"] == "fallback_message" for step in steps):
            return
        frozen = {name: whole[name] for name in _FROZEN if name in whole}
        messages = [*whole["messages"], {"role": "assistant", "content": message["content"]}]
        self._held[message["id"]] = _Held(frozen, _fixed(whole, betas), messages)


def _continued(body: Any) -> str | None:
    """Return the reply that a request continues from; None for any other request, and for a malformed one."""
    thread = body.get("thread") if isinstance(body, dict) else None
    last = thread.get("previous_message_id") if isinstance(thread, dict) and thread.get("type") == "continue" else None
    return last if isinstance(last, str) else None


def _fixed(body: Body, betas: frozenset[str]) -> tuple[Any, frozenset[str]]:
    return body.get("model"), betas - {THREADS_BETA}
