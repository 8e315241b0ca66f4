"""The pages and forms: show data from the inbox, and apply submitted forms to it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

from attrs import frozen
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from toolloop._drivers.event_loops import in_thread
from toolloop._interface.loop_view import PendingView
from toolloop.errors import InvalidEdit
from toolloop.inbox.asynchronous import AsyncInbox
from toolloop.inbox.items import ShownLoop
from toolloop.inbox.page.bodies import check_values, read_form
from toolloop.inbox.page.changes import CALLS, LOOPS, Changes
from toolloop.inbox.page.forms import BadForm, form_fields, line_ends, typed_input
from toolloop.inbox.page.people import People
from toolloop.inbox.page.rendering import rendered
from toolloop.inbox.page.security import FormTokens
from toolloop.inbox.transcript import parts_of
from toolloop.machine.values.calls import Answer, Approve, Decision, Deny, Rerun
from toolloop.machine.values.names import Person
from toolloop.stores.protocol import Store


@frozen
class Views:
    """The pages of a store."""

    store: Store
    inbox: AsyncInbox
    people: People
    tokens: FormTokens
    changes: Changes

    # --- pages ---

    async def home(self, request: Request) -> Response:
        """Show the waiting calls and the loops."""
        by = await self.people.require(request)
        query = request.query_params
        version = await self.changes.version(None)
        waiting = await self.inbox.pending(limit=CALLS, cursor=query.get("after"))
        before = query.get("before")
        loops = await in_thread(partial(self.store.list, limit=LOOPS, before=before))
        more = loops[-1].cursor if len(loops) == LOOPS else None
        shown = {"version": version, "waiting": waiting, "loops": loops, "more": more}
        return rendered(request, "home.html", by=by.name, token=self._token(request, by), **shown)

    async def loop(self, request: Request) -> Response:
        """Show a loop."""
        return await self._loop_page(request, _given(request.query_params, "id"), await self.people.require(request))

    async def _loop_page(
        self, request: Request, loop_id: str, by: Person, *, problem: str = "", typed: Mapping[str, str] | None = None
    ) -> Response:
        version = await self.changes.version(loop_id)
        shown = await self.inbox.show(loop_id)
        entries = await self.inbox.trail(loop_id)
        decisions = {entry.path[0]: entry for entry in entries if len(entry.path) == 1}
        waiting = {call["id"] for call in shown["pending"] if len(call["path"]) == 1}
        conversation = [(part, decisions.get(part.id)) for part in parts_of(shown["messages"])]
        return rendered(
            request,
            "loop.html",
            status=422 if problem else 200,
            by=by.name,
            version=version,
            shown=shown,
            conversation=[each for each in conversation if each[0].id not in waiting],
            entries=entries,
            token=self._token(request, by),
            problem=problem,
            typed=typed or {},
        )

    async def changes_since(self, request: Request) -> Response:
        """Answer an open page that asks what changed. See `changes`."""
        await self.people.require(request)
        query = request.query_params
        answer = await self.changes.since(query.get("since"), query)
        return Response(status_code=204) if answer is None else JSONResponse(answer)

    # --- forms ---

    async def decide(self, request: Request) -> Response:
        """Decide a call."""
        by, form = await self._form(request)
        loop_id, name = _loop(form), _given(form, "call")
        path = tuple(name.split("/"))
        self.tokens.check_pause(form.get("csrf"))
        try:
            check_values(form)
            decision = await self._decision(loop_id, path, form, by)
            await self.inbox.decide(loop_id, {"/".join(path): decision})
        except (BadForm, InvalidEdit) as error:
            return await self._loop_page(request, loop_id, by, problem=str(error), typed=form)
        return _to(request, None if form.get("next") == "home" else loop_id)

    async def _decision(self, loop_id: str, path: tuple[str, ...], form: Mapping[str, str], by: Person) -> Decision:
        if form.get("kind") != "edit":
            return _decision(form, by, digest=_given(form, "digest"))
        typed = {key: text for key, text in form.items() if key.startswith("field.")}
        call, schema = await self._waiting(loop_id, path)
        # If the call no longer waits, the error of the inbox names the person who decided.
        given: Mapping[str, Any] = typed if call is None else typed_input(form_fields(schema, call["input"]), typed)
        return Approve(given, by=by, digest=_given(form, "digest"))

    async def _waiting(self, loop_id: str, path: tuple[str, ...]) -> tuple[PendingView | None, Any]:
        shown: ShownLoop = await self.inbox.show(loop_id)
        call = next((each for each in shown["pending"] if tuple(each["path"]) == path), None)
        return call, shown["schemas"].get("/".join(path), {})

    async def stop(self, request: Request) -> Response:
        """End a loop permanently."""
        by, form = await self._form(request)
        check_values(form)
        await self.inbox.stop(_loop(form), str(form.get("reason") or "") or None, by)
        return _to(request, _loop(form))

    async def say(self, request: Request) -> Response:
        """Send a message to the model."""
        by, form = await self._form(request)
        check_values(form)
        await self.inbox.say(_loop(form), line_ends(_given(form, "text")), by)
        return _to(request, _loop(form))

    async def retry(self, request: Request) -> Response:
        """Retry a failed request."""
        by, form = await self._form(request)
        check_values(form)
        await self.inbox.retry(_loop(form), by)
        return _to(request, _loop(form))

    # --- links ---

    async def link(self, request: Request) -> Response:
        """Show the call of a link. Opening it decides nothing, because mail programs also open links."""
        token = request.path_params["token"]
        call = await self.inbox.linked(token)
        shown = await self.inbox.show(call.loop_id)
        whole = next((each for each in shown["pending"] if tuple(each["path"]) == call.path), call)
        values = {"call": whole, "allow": call.takes, "link": token, "token": self.tokens.of(f"link {token}")}
        return rendered(request, "link.html", by=None, **values)

    async def redeem(self, request: Request) -> Response:
        """Decide a call through a link."""
        token = request.path_params["token"]
        await self.inbox.linked(token)  # no login is needed here, so the body is read only for a valid link
        form = await read_form(request)
        self.tokens.check(request, form.get("csrf"), f"link {token}")
        check_values(form)
        decision = _decision(form, await self.people.find(request), digest=None)
        await self.inbox.redeem(token, decision)
        text = f"Your decision is stored: {type(decision).__name__.lower()}. You can close this page."
        return rendered(request, "message.html", by=None, title="Thank you", text=text, back=None)

    # --- forms of a person ---

    async def _form(self, request: Request) -> tuple[Person, dict[str, str]]:
        by, form = await self.people.require(request), await read_form(request)
        self.tokens.check(request, form.get("csrf"), _subject(by))
        return by, form

    def _token(self, request: Request, by: Person) -> str:
        return self.tokens.of(_subject(by), is_new="done" in request.query_params)


def _subject(by: Person) -> str:
    return f"person {by.name}"


def _decision(form: Mapping[str, str], by: Person | None, digest: str | None) -> Decision:
    match form.get("kind"):
        case "approve":
            return Approve(by=by, digest=digest)
        case "deny":
            return Deny(line_ends(str(form.get("reason") or "")) or "no reason given", by=by, digest=digest)
        case "answer":
            return Answer(line_ends(str(form.get("content") or "")), is_error="error" in form, by=by, digest=digest)
        case "rerun":
            return Rerun(by=by, digest=digest)
    raise BadForm("the form has no decision")


def _given(form: Mapping[str, Any], name: str) -> str:
    value = form.get(name)
    if not isinstance(value, str) or not value:
        raise BadForm(f"the form has no {name}")
    return value


def _loop(form: Mapping[str, Any]) -> str:
    return unquote(_given(form, "loop"))


def _to(request: Request, loop_id: str | None) -> Response:
    """Redirect the browser to the page of a loop, or to the home page."""
    there = "" if loop_id is None else f"loop?id={quote(loop_id, safe='')}"
    return RedirectResponse(f"{request.scope.get('root_path', '')}/{there}", 303)
