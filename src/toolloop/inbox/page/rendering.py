"""Render the templates of the page, with filters for texts and times. Everything is escaped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from toolloop.inbox.items import gist_of
from toolloop.inbox.page.forms import form_fields
from toolloop.inbox.page.shown import words
from toolloop.inbox.page.shown.characters import shown_line
from toolloop.inbox.page.shown.running import running_words
from toolloop.inbox.page.shown.values import ShownInput, shown_input, shown_text
from toolloop.inbox.transcript import visible

_LINES, _CHARACTERS = 6, 480  # of a text that says why; the rest is one step away
_NEAR = 20 * 3600  # seconds; a time that is further away has its date


def rendered(request: Request, template: str, /, **values: Any) -> HTMLResponse:
    """Return a page with these values. `status` is the status of the response; `now` is the time of the page."""
    base = request.scope.get("root_path", "")
    html = _templates.get_template(template).render(**{"base": base, "page": "", "me": None, **values})
    return HTMLResponse(html, values.get("status", 200))


def _is_long(text: str) -> bool:
    return len(text) > _CHARACTERS or text.count("\n") >= _LINES


def _first_lines(text: str) -> str:
    return "\n".join(text.split("\n")[:_LINES])[:_CHARACTERS] + "…"


def diff_lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of a unified diff, each with its kind."""
    kinds = {"@@": "hunk", "+": "add", "-": "del"}
    files = {"+++": "hunk", "---": "hunk"}
    for line in text.rstrip("\n").split("\n"):
        if line.startswith("@@"):
            files = {}  # from here on, such a line may be added or removed text
        yield next((kind for sign, kind in {**files, **kinds}.items() if line.startswith(sign)), ""), line


def _is_diff(text: str) -> bool:
    lines = text.split("\n")
    return any(line.startswith("@@ ") for line in lines) and any(line.startswith("+++ ") for line in lines)


def changed_fields(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, ShownInput]]:
    """Return the changed fields of an edit, each as one diff with all lines before and after."""
    names = dict.fromkeys((*old, *new))
    pairs = {name: [_text(each[name]) if name in each else "" for each in (old, new)] for name in names}
    return [
        (name, shown_input({"before": before, "after": after}, diff=("before", "after")))
        for name, (before, after) in pairs.items()
        if before != after or (name in old) != (name in new)
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


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
        "counted": words.count,
        "diff_lines": diff_lines,
        "changed": changed_fields,
        "duration": words.duration,
        "exact": _exact,
        "prose": lambda text: [shown_line(line, prose=True) for line in text.split("\n")],
        "gist": gist_of,
        "shown": shown_input,
        "first_lines": _first_lines,
        "form_fields": form_fields,
        "is_long": _is_long,
        "iso": lambda value: _moment(value).isoformat(),
        "left": words.time_left,
        "line": shown_line,
        "running": running_words,
        "time": _time,
        "visible": visible,
        "words": lambda text: text.replace("_", " "),
    }
    found.filters.update(filters)
    tests: dict[str, Any] = found.tests
    tests["diff"] = _is_diff
    return found


_templates = _environment()
