"""A browser without JavaScript at the approval page."""

from __future__ import annotations

import html
import re
from typing import Any

from attrs import define, field
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from tests.kit.world import World
from toolloop.inbox import inbox_app

FORM = re.compile(r'<form (?P<head>[^>]*method="post"[^>]*)>(?P<body>.*?)</form>', re.DOTALL)
ACTION = re.compile(r'action="([^"]*)"')
HIDDEN = re.compile(r'<input type="hidden" name="(?P<name>[^"]*)" value="(?P<value>[^"]*)">')


@define
class Visitor:
    """A browser without JavaScript: it sends the forms of the page that it has open."""

    desk: World
    by: str = "ana"
    base: str = ""
    site: str = "same-origin"
    more: dict[str, Any] = field(factory=dict)  # what else the application says, such as `may`
    http: TestClient = field(init=False)
    text: str = ""

    def __attrs_post_init__(self) -> None:
        parts: dict[str, Any] = {"who": lambda request: request.headers.get("x-user"), **self.more}
        page = inbox_app(self.desk.store, clock=self.desk.clock, **parts)
        app = Starlette(routes=[Mount(self.base, page)]) if self.base else page
        self.http = TestClient(app, headers={"x-user": self.by}, raise_server_exceptions=False)

    @property
    def bare(self) -> str:
        """The text of the page, without tags."""
        spaced = re.sub(r"</?(?:dt|dd|p|li|td|th|div|h\d|form|label|section|option)\b[^>]*>", " ", self.text)
        return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", spaced)))

    def open(self, path: str, **query: str) -> int:
        answer = self.http.get(self.base + path, params=query or None)
        self.text = answer.text
        return answer.status_code

    def form(self, kind: str) -> re.Match[str]:
        """Return the first form with a button that is called so."""
        button = f'name="kind" value="{kind}"'
        outside = f'form="group" {button}' in self.text  # the bar of a group stands behind its form
        parts = 'id="group"' if outside else button
        return next(found for found in FORM.finditer(self.text) if parts in found["head"] + found["body"])

    def has(self, kind: str) -> bool:
        """Return whether the page has such a button."""
        return f'name="kind" value="{kind}"' in self.text

    def send(self, kind: str, /, **typed: Any) -> Any:
        """Press a button, and stay on the page."""
        return self.post(self.form(kind), **{"kind": kind} | typed)

    def decide(self, kind: str, call: str, /, **typed: Any) -> Any:
        """Open a call (a key, such as `loop..c1`), press a button of it, and open the page that follows."""
        self.open("/", call=call, **({"do": kind} if kind != "approve" else {}))
        return self.follow(self.send(kind, **typed))

    def follow(self, answer: Any) -> Any:
        """Open the page to which an answer leads."""
        self.text = answer.text
        if answer.status_code == 303:
            self.text = self.http.get(answer.headers["location"]).text
        return answer

    def post(self, form: re.Match[str], **typed: Any) -> Any:
        hidden = {each["name"]: html.unescape(each["value"]) for each in HIDDEN.finditer(form["body"])}
        headers = {"sec-fetch-site": self.site}
        (action,) = ACTION.findall(form["head"])
        return self.http.post(action, data=hidden | typed, headers=headers, follow_redirects=False)
