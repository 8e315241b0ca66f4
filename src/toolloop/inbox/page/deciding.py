"""The forms: each becomes a decision or a command of the inbox, and the next page tells what came of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from attrs import frozen
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from toolloop.errors import CallerError, IllegalCommand, InvalidEdit, LoopNotFound, NotAllowed, UnknownCall
from toolloop.inbox.page.bodies import ValueTooLong, check_values, read_form
from toolloop.inbox.page.forms import BadForm, BadInput, form_fields, line_ends, typed_input
from toolloop.inbox.page.people import Me
from toolloop.inbox.page.rendering import rendered
from toolloop.inbox.page.security import TooSoonError
from toolloop.inbox.page.views import FORMS, Look, Problem, Refused, Views, number_of
from toolloop.inbox.shown import words
from toolloop.inbox.shown.cards import Card
from toolloop.inbox.shown.edits import changed_fields
from toolloop.inbox.shown.keys import from_key
from toolloop.inbox.shown.queue import Filters
from toolloop.inbox.shown.values import ShownInput
from toolloop.machine.values.calls import Answer, Approve, Decision, Deny, Grant, Rerun
from toolloop.rules import RuleResult


@frozen
class Change:
    """An edit before it is sent.

    Attributes:
        seen: identifies what was typed.
        fields: each changed field as a diff.
        rules: what each rule that decides says of the edited input; None if the page has no rules.

    """

    seen: str
    fields: list[tuple[str, ShownInput]]
    rules: list[RuleResult] | None = None


@frozen
class Deciding:
    """The forms of a store."""

    views: Views

    async def decide(self, request: Request) -> Response:
        """Decide a call, and go to the next one."""
        me, form = await self.form(request)
        key, filters = given(form, "call"), Filters.of(dict(parse_qsl(str(form.get("back", "")))))
        loop_id, path = from_key(key)
        try:
            check_values(form)
            self.views.tokens.check_pause(form.get("csrf"))
            decision = await self._decision(key, form, me)
            if isinstance(decision, Refused):
                return await self.views.queue_page(request, me, Look(filters, key), decision)
            await me.inbox.decide(loop_id, {"/".join(path): decision})
        except (LoopNotFound, UnknownCall):
            raise
        except (CallerError, TooSoonError, ValueTooLong) as error:
            again = await self._refused(key, form, me, error)
            return await self.views.queue_page(request, me, Look(filters, key), again)
        order = [each for each in await self.views.order(filters, me) if each != key]
        after = str(form.get("next") or "")
        following = after if after in order else next(iter(order), "")
        there = filters.query(**({"call": following} if following else {}), done=key)
        return RedirectResponse(f"{request.scope.get('root_path', '')}/?{there}", 303)

    async def _decision(self, key: str, form: Mapping[str, str], me: Me) -> Decision | Refused:
        if form.get("kind") != "edit":
            return decision_of(form, digest=given(form, "digest"))
        typed = typed_texts(form)
        card = await self.views.card(key, me, self.views.clock())
        if card.call is None:  # the error of the inbox names the person who decided
            return Approve({}, digest=given(form, "digest"))
        fields = form_fields(card.schema, card.input_given)
        try:
            edited = typed_input(fields, typed)
        except BadInput as error:
            title = "Not sent: one value does not fit." if len(error.problems) == 1 else "Not sent: values do not fit."
            number, text = next(iter(error.problems.items()))
            return Refused(422, "edit", Problem(title, text, f"field-{number}"), typed, error.problems)
        seen = hashlib.sha256(json.dumps(edited, sort_keys=True).encode()).hexdigest()
        if form.get("seen") != seen:
            change = Change(seen, changed_fields(card.input_given, edited), self._deciding_rules(card, edited))
            return Refused(200, "edit", typed=typed, change=change)
        return Approve(edited, digest=given(form, "digest"))

    def _deciding_rules(self, card: Card, edited: Mapping[str, Any]) -> list[RuleResult] | None:
        """Return the rules that decide an edited input. A hidden value counts as one that is not given."""
        if self.views.rules is None:
            return None
        known = {name: value for name, value in edited.items() if name not in card.secrets}
        results = self.views.rules.explain(card.name, known, schema=card.schema or None)
        return [each for each in results if each.decides]

    async def _refused(self, key: str, form: Mapping[str, str], me: Me, error: Exception) -> Refused:
        """Return how the page shows the call again, by what stands now."""
        typed, kind = typed_texts(form), str(form.get("kind"))
        if isinstance(error, ValueTooLong):
            wrongs = {int(error.field[6:]): str(error)} if error.field.startswith("field.") else {}
            problem = Problem("Not sent: a value is too long.", str(error), error.field.replace(".", "-"))
            return Refused(422, kind, problem, typed, wrongs)
        if isinstance(error, InvalidEdit):
            return Refused(422, "edit", Problem("Not sent: the input does not fit the tool.", str(error)), typed)
        if isinstance(error, NotAllowed):
            problem = Problem("Not sent: your rights do not include this.", f"{error}.")
            return Refused(403, kind if kind in FORMS else "", problem, typed)
        card = await self.views.card(key, me, self.views.clock())
        if card.waits:
            is_other = card.call is not None and form.get("digest") != card.call.digest
            text = "The call has changed since this page showed it. Read it again." if is_other else str(error)
            return Refused(409, kind if kind in FORMS else "", Problem("Not sent.", text), typed)
        return Refused(409, "", _what_stands(card), typed)

    async def decide_group(self, request: Request) -> Response:
        """Decide each chosen call by itself; the page tells what came of each."""
        me, form = await self.form(request)
        chosen = [value.split(" ") for name, value in form.items() if name.startswith("chosen.")]
        if not chosen or not all(len(each) == 2 for each in chosen):  # noqa: PLR2004 - a key and a digest
            problem = Problem("Not sent: no call is chosen.", "Choose at least one call.")
            return await self.views.group_page(request, me, form, problem)
        query = Filters.of(dict(parse_qsl(str(form.get("back", ""))))).query(
            of=given(form, "of"), one=str(form.get("one", ""))
        )
        by_loop: dict[str, dict[str, Decision]] = {}
        for key, digest in chosen:
            loop_id, path = from_key(key)
            by_loop.setdefault(loop_id, {})["/".join(path)] = decision_of(form, digest)
        outcomes: list[object] = []
        for loop_id, decisions in by_loop.items():
            with suppress(LoopNotFound):  # the page reads what stands
                outcomes += (await me.inbox.decide(loop_id, decisions, each=True)).values()
        if outcomes and all(isinstance(each, NotAllowed) for each in outcomes):
            raise NotAllowed(str(outcomes[0]))
        done = urlencode({"done": " ".join(key for key, _ in chosen)})
        return RedirectResponse(f"{request.scope.get('root_path', '')}/group?{query}&{done}", 303)

    # --- a loop ------------------------------------------------------------------------------------------------------

    async def stop(self, request: Request) -> Response:
        """End a loop permanently."""
        me, form = await self.form(request)
        await me.inbox.stop(_loop(form), str(form.get("reason") or "") or None)
        return _to_loop(request, _loop(form))

    async def say(self, request: Request) -> Response:
        """Send a message to the model: once, however often the form is sent."""
        me, form = await self.form(request)
        loop_id, text = _loop(form), line_ends(given(form, "text"))
        key = hashlib.sha256(f"{given(form, 'key')} {text}".encode()).hexdigest()
        try:
            await me.inbox.say(loop_id, text, key=key)
        except LoopNotFound:
            raise
        except CallerError as error:
            status = 403 if isinstance(error, NotAllowed) else 409
            again = Refused(status, problem=Problem("Not sent.", str(error)), typed={"text": text})
            return await self.views.loop_page(request, me, loop_id, again)
        return _to_loop(request, loop_id)

    async def withdraw(self, request: Request) -> Response:
        """Withdraw a message that is kept."""
        me, form = await self.form(request)
        loop_id = _loop(form)
        try:
            await me.inbox.withdraw(loop_id, given(form, "said"))
        except IllegalCommand as error:
            again = Refused(409, problem=Problem("Not withdrawn.", str(error)))
            return await self.views.loop_page(request, me, loop_id, again)
        return _to_loop(request, loop_id)

    async def retry(self, request: Request) -> Response:
        """Retry a failed request."""
        me, form = await self.form(request)
        await me.inbox.retry(_loop(form))
        return _to_loop(request, _loop(form))

    async def revoke(self, request: Request) -> Response:
        """Revoke a standing grant."""
        me, form = await self.form(request)
        await me.inbox.revoke(_loop(form), given(form, "grant"))
        return _to_loop(request, _loop(form))

    # --- a link ------------------------------------------------------------------------------------------------------

    async def redeem(self, request: Request) -> Response:
        """Decide a call through a link."""
        token, me = request.path_params["token"], await self.views.at_link(request)
        await me.inbox.linked(token)  # no login is needed here, so the body is read only for a valid link
        form = await read_form(request)
        self.views.tokens.check(request, form.get("csrf"), f"link {token}")
        check_values(form)
        decision = decision_of(form, digest=None)
        if not me.is_signed_in and form.get("number") != number_of(token):
            problem = Problem("Not sent: the number is missing or differs.", f"Type {number_of(token)}.", "number")
            kind = str(form.get("kind"))
            return await self.views.link_page(
                request, Refused(422, kind if kind in FORMS else "", problem, typed_texts(form))
            )
        await me.inbox.redeem(token, decision)
        past = words.PAST[type(decision).__name__.lower()]
        text = "Your decision is stored. You can close this page."
        return rendered(request, "message.html", title=past.capitalize(), message=text, kind="go", back=None)

    async def form(self, request: Request) -> tuple[Me, Mapping[str, str]]:
        """Return the person of a form, and the form."""
        me, form = await self.views.people.require(request), await read_form(request)
        self.views.tokens.check(request, form.get("csrf"), f"person {me.name}")
        return me, form


def _what_stands(card: Card) -> Problem:
    if card.is_expired:
        return Problem("Not sent: this call has expired.", card.what_came)
    if card.decision is None:
        return Problem("Not sent: this call no longer waits.")
    record, _ = card.decision
    past = words.PAST[record.kind]
    why = f" (“{record.reason}”)" if record.reason else ""
    return Problem(f"Not sent: {card.by} {past} this already{why}.", f"{card.what_came}".strip())


def decision_of(form: Mapping[str, str], digest: str | None) -> Decision:
    """Return the decision of a form.

    Raises:
        BadForm: the form has none.

    """
    match form.get("kind"):
        case "approve":
            return Approve(digest=digest)
        case "grant":
            return Approve(digest=digest, remember=Grant())
        case "deny":
            return Deny(line_ends(str(form.get("reason") or "")) or "no reason given", digest=digest)
        case "answer":
            return Answer(line_ends(str(form.get("content") or "")), is_error="error" in form, digest=digest)
        case "rerun":
            return Rerun(digest=digest)
    raise BadForm("the form has no decision")


def typed_texts(form: Mapping[str, str]) -> dict[str, str]:
    """Return the texts that a person typed."""
    return {name: line_ends(text) for name, text in form.items() if name != "csrf"}


def given(form: Mapping[str, Any], name: str) -> str:
    """Return a field of a form.

    Raises:
        BadForm: it is missing or empty.

    """
    value = form.get(name)
    if not isinstance(value, str) or not value:
        raise BadForm(f"the form has no {name}")
    return value


def _loop(form: Mapping[str, Any]) -> str:
    return unquote(given(form, "loop"))


def _to_loop(request: Request, loop_id: str) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}/loop?id={quote(loop_id, safe='')}", 303)
