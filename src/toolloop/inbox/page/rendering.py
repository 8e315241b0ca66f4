"""Render the templates of the page, with filters for texts and times. Everything is escaped."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from toolloop._interface.heads import text_of_cost
from toolloop.inbox.items import gist_of
from toolloop.inbox.page.forms import form_fields
from toolloop.inbox.shown import words
from toolloop.inbox.shown.characters import shown_line
from toolloop.inbox.shown.edits import changed_fields
from toolloop.inbox.shown.previews import first_lines, is_diff, unified_lines
from toolloop.inbox.shown.running import running_words
from toolloop.inbox.shown.values import shown_input, shown_text
from toolloop.inbox.transcript import escape_hidden

_NEAR = 20 * 3600  # seconds; a time that is further away has its date


def rendered(request: Request, template: str, /, **values: Any) -> HTMLResponse:
    """Return a page with these values. `status` is the status of the response; `now` is the time of the page."""
    base = request.scope.get("root_path", "")
    html = _templates.get_template(template).render(**{"base": base, "page": "", "me": None, **values})
    return HTMLResponse(html, values.get("status", 200))


def _moment(value: float | str | datetime) -> datetime:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    moment = value if isinstance(value, datetime) else datetime.fromtimestamp(value, UTC)
    return moment.astimezone(UTC)


@pass_context
def _time(context: Context, value: float | str | datetime) -> Markup:
    """Return a time as an HTML element, from seconds since the epoch, ISO 8601 or a datetime."""
    moment = _moment(value)
    is_near = abs(moment.timestamp() - context["now"]) < _NEAR
    text = moment.strftime("%H:%M UTC" if is_near else "%Y-%m-%d %H:%M UTC")
    html = '<time datetime="{}" data-{}>{}</time>'
    return Markup(html).format(moment.isoformat(), "time" if is_near else "date", text)  # noqa: S704 - a constant


@lru_cache(maxsize=4096)  # a queue shows the same names again and again
def _exact(text: str) -> Markup:
    """Return a name, an id or another short text as HTML."""
    module: Any = _templates.get_template("value.html").module  # with a macro, which a type checker cannot see
    html: Markup = module.text(shown_text(text))
    return html


def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("toolloop.inbox.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {
        "address": lambda text: quote(text, safe=""),
        "cost": text_of_cost,
        "counted": words.count,
        "diff_lines": unified_lines,
        "changed": changed_fields,
        "duration": words.duration,
        "exact": _exact,
        "prose": lambda text: [shown_line(line, prose=True) for line in text.split("\n")],
        "gist": gist_of,
        "shown": shown_input,
        "first_lines": lambda text: f"{first_lines(text)}…",
        "form_fields": form_fields,
        "is_long": lambda text: first_lines(text) != text,
        "iso": lambda value: _moment(value).isoformat(),
        "left": words.time_left,
        "line": shown_line,
        "running": running_words,
        "time": _time,
        "visible": escape_hidden,
        "words": lambda text: text.replace("_", " "),
    }
    found.filters.update(filters)
    tests: dict[str, Any] = found.tests
    tests["diff"] = is_diff
    return found


_templates = _environment()
