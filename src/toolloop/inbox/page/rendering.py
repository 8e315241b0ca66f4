"""Render the templates of the page, with filters for texts and times. Everything is escaped."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from toolloop.inbox.page.forms import form_fields
from toolloop.inbox.transcript import fields_of, visible

_LONG = 700  # characters
_MANY = 14  # lines


def rendered(request: Request, template: str, /, **values: Any) -> HTMLResponse:
    """Return a page with these values. `status` is the status of the response."""
    base = request.scope.get("root_path", "")
    html = _templates.get_template(template).render(base=base, **values)
    return HTMLResponse(html, values.get("status", 200))


def _is_long(text: str) -> bool:
    return len(text) > _LONG or text.count("\n") >= _MANY


def _diff_lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of a unified diff, each with its kind."""
    kinds = {"@@": "hunk", "+": "added", "-": "removed"}
    files = {"+++": "file", "---": "file"}
    for line in text.rstrip("\n").split("\n"):
        if line.startswith("@@"):
            files = {}  # from here on, such a line may be added or removed text
        yield next((kind for sign, kind in {**files, **kinds}.items() if line.startswith(sign)), "same"), line


def _is_diff(text: str) -> bool:
    lines = text.split("\n")
    return any(line.startswith("@@ ") for line in lines) and any(line.startswith("+++ ") for line in lines)


def _time(value: float | str | datetime | None) -> Markup:
    """Return a time as an HTML element, from seconds since the epoch, ISO 8601 or a datetime."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    moment = value if isinstance(value, datetime) else datetime.fromtimestamp(value or 0.0, UTC)
    moment = moment.astimezone(UTC)
    html = '<time datetime="{}">{}</time>'
    return Markup(html).format(moment.isoformat(), moment.strftime("%Y-%m-%d %H:%M UTC"))  # noqa: S704 - a constant


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
        "diff_lines": _diff_lines,
        "fields": fields_of,
        "form_fields": form_fields,
        "time": _time,
        "visible": visible,
        "words": lambda text: text.replace("_", " "),
    }
    tests: dict[str, Any] = {"long": _is_long, "diff": _is_diff}
    found.filters.update(filters)
    found.tests.update(tests)
    return found


_templates = _environment()
