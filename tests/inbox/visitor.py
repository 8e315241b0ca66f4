"""A browser without JavaScript at the approval page."""

from __future__ import annotations

import html
import re
from typing import Any

from attrs import define, field
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from tests.inbox.support import Desk
from toolloop.inbox import inbox_app

FORM = re.compile(r'<form method="post" action="(?P<action>[^"]*)">(?P<body>.*?)</form>', re.DOTALL)
HIDDEN = re.compile(r'<input type="hidden" name="(?P<name>[^"]*)" value="(?P<value>[^"]*)">')


@define
class Visitor:
    """A browser without JavaScript: it sends the forms of the page that it has open."""

    desk: Desk
    by: str = "ana"
    base: str = ""
    site: str = "same-origin"
    http: TestClient = field(init=False)
    text: str = ""

    def __attrs_post_init__(self) -> None:
        page = inbox_app(self.desk.store, who=lambda request: request.headers.get("x-user"), clock=self.desk.clock)
        app = Starlette(routes=[Mount(self.base, page)]) if self.base else page
        self.http = TestClient(app, headers={"x-user": self.by}, raise_server_exceptions=False)

    def open(self, path: str, **query: str) -> int:
        answer = self.http.get(self.base + path, params=query or None)
        self.text = answer.text
        return answer.status_code

    def send(self, kind: str, call_id: str | None = None, /, **typed: str) -> Any:
        """Press a button: the first that is called so, of a call or of any."""
        parts = [f'name="kind" value="{kind}"', "" if call_id is None else f'name="call" value="{call_id}"']
        form = next(found for found in FORM.finditer(self.text) if all(part in found["body"] for part in parts))
        return self.post(form, **{"kind": kind} | typed)

    def post(self, form: re.Match[str], **typed: str) -> Any:
        hidden = {each["name"]: html.unescape(each["value"]) for each in HIDDEN.finditer(form["body"])}
        headers = {"sec-fetch-site": self.site}
        return self.http.post(form["action"], data=hidden | typed, headers=headers, follow_redirects=False)
