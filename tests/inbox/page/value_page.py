"""A small page around an input, with the colours and sizes of the approval page and the control that approves."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

import toolloop.inbox.page
from toolloop.inbox.shown.values import ShownInput

_STATIC = Path(toolloop.inbox.page.__file__).with_name("static")
_TOKENS = """
:root { color-scheme: light dark;
  --paper: #ffffff; --well: #f8f7f4; --hover: #efede8; --ink: #1e1d1a; --quiet: #615d55; --line: #e4e0d8;
  --edge: #8f897e; --go: #1f6b4a; --no: #b02a21; --warn: #8a5300; --go-well: #e3f3e9; --no-well: #fceae7;
  --key: #5b4a9c; --literal: #23637f; --mark: #ffe08a; --mark-ink: #3b2a00;
  --t-xs: .75rem; --t-s: .8125rem; --t-m: .9375rem; --s1: .25rem; --s2: .5rem; --s3: .75rem; --s4: 1rem; --s5: 1.5rem;
  --r1: 5px; --r2: 9px; --sans: system-ui, sans-serif; --mono: ui-monospace, "DejaVu Sans Mono", monospace; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #1b1a19; --well: #21201e; --hover: #282623; --ink: #edeae4; --quiet: #a8a299; --line: #35322e;
  --edge: #7d776d; --go: #2a7a53; --no: #ff9d92; --warn: #f1c46c; --go-well: #173324; --no-well: #3b1f1c;
  --key: #c3b5ff; --literal: #8fcbe6; --mark: #6b5200; --mark-ink: #fff1c9; } }
@media (max-width: 47.9rem) { :root { --t-m: 1rem; --t-s: .875rem; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 1rem; background: var(--paper); color: var(--ink); font: var(--t-m)/1.5 var(--sans); }
body { overflow-wrap: anywhere; }
p { margin: 0; } main { max-width: 56rem; }
"""
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>A call</title><style>{{ style|safe }}</style><main>{% from "value.html" import input %}{{ input(shown) }}
{% if shown.is_whole %}<button>Approve</button>{% endif %}<button>Deny</button></main>"""
_environment = Environment(
    loader=PackageLoader("toolloop.inbox.page"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_template = _environment.from_string(_PAGE)


def page_of(shown: ShownInput) -> str:
    """Return the page as HTML."""
    return _template.render(shown=shown, style=_TOKENS + (_STATIC / "input.css").read_text())
