"""The page of a link that decides nothing any more. It says what became of the call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from toolloop._drivers.event_loops import run_in_thread
from toolloop._journal.store_access import call_store
from toolloop.errors import BadLink, LinkExpired, LinkUsed, LoopNotFound, NotAllowed, UnknownCall
from toolloop.inbox.page.people import UnknownPersonError
from toolloop.inbox.page.rendering import rendered
from toolloop.inbox.page.views import Views
from toolloop.inbox.rights.links import Link
from toolloop.inbox.shown import words
from toolloop.inbox.shown.cards import Card
from toolloop.inbox.shown.keys import key_of


def dead_link_page(views: Views) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Return the handler of the errors of links."""

    async def read(request: Request) -> Card | None:
        """Return the call, if the person at the link sees it."""
        with suppress(BadLink, LoopNotFound, UnknownCall, NotAllowed, UnknownPersonError):
            link = Link.of(request.path_params["token"], views.secret, 0.0)  # an expired one, too
            me = await views.people.at_link(request, link)
            find = partial(me.store.load, link.loop_id, first_id=link.first_id)
            await run_in_thread(partial(call_store, link.loop_id, find))
            return await views.card(key_of(link.loop_id, link.path), me, views.clock())
        return None

    async def page(request: Request, error: Exception) -> Response:
        card = await read(request)
        kind, title, text = _what_became(card, error, views.clock())
        return rendered(request, "message.html", status=410, title=title, message=text, kind=kind, back=None)

    return page


def _what_became(card: Card | None, error: Exception, now: float) -> tuple[str, str, str]:
    """Return the kind of the note, the title and the text of the page."""
    if card is not None and card.is_expired and not isinstance(error, BadLink):
        return (
            "no",
            "This call has expired",
            f"The call of {card.name} was not decided in time. It expired {card.what_came}",
        )
    if isinstance(error, LinkExpired):
        ago = words.duration(now - error.at.timestamp())
        return "no", "This link has expired", f"It expired {ago} ago. If the call still waits, ask for a new link."
    if card is None or not isinstance(error, LinkUsed):
        return "no", "This link is not valid", f"{error}."
    if card.waits:  # more than one approval is needed, and the person of the link has given one
        return "calm", "Already approved", f"Your approval is stored. {card.need.waits_for}"
    if card.decision is None:
        return "calm", "This call is closed", f"It no longer waits, and was not decided. {card.fate}"
    record, _ = card.decision
    why = f" (“{record.reason}”)" if record.reason else ""
    by = record.by or "a person without a name"
    text = f"The call of {card.name} in {card.loop_id} was {words.PAST[record.kind]} by {by}{why} {card.what_came}"
    return "calm", "Already decided", f"{text} There is nothing left to decide."
