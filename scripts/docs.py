"""Write the generated parts of the docs: what the code knows, the docs need not repeat by hand.

    python -m scripts.docs            write them
    python -m scripts.docs --check    change nothing; exit 1 and name the files that are stale

A generated part stands between `<!-- generated: NAME -->` and `<!-- end of generated part -->`. The pictures of
`scripts/pictures.py` are generated, too, and the stubs of the packages that import their names on first use.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from scripts.pictures import PICTURES
from scripts.reference_pages import page as reference_page
from scripts.rooms import FLOORS, SOURCE, rooms_on, sentences
from scripts.surface import DOORS
from toolloop.machine import STOP_REASONS, TRANSITIONS

ROOT = Path(__file__).parents[1]
LAZY = ("toolloop", "toolloop.inbox", "toolloop.stores")
_PART = re.compile(
    r"(?P<start><!-- generated: (?P<name>[\w.-]+) -->\n).*?(?P<end><!-- end of generated part -->)", re.DOTALL
)


def state_table() -> str:
    """The table as a table: a row for each event, a column for each phase."""
    states = list(TRANSITIONS)
    events = {event: None for row in TRANSITIONS.values() for event in row}
    lines = [
        f"| event | {' | '.join(state.__name__ for state in states)} |",
        f"|---|{'---|' * len(states)}",
    ]
    for event in events:
        cells = (_targets(state, event) for state in states)
        lines.append(f"| `{event.__name__}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _targets(state: Any, event: Any) -> str:
    rule = TRANSITIONS[state].get(event)
    if rule is None:
        return ""
    return ", ".join("stays" if target is state else target.__name__ for target in rule.to)


def stop_reasons() -> str:
    """The stop reasons, and what becomes of a reply."""
    lines = ["| stop reason | what happens to the reply | action |", "|---|---|---|"]
    lines += [f"| `{reason}` | {action.value} | `{action.name}` |" for reason, action in STOP_REASONS.items()]
    return "\n".join(lines)


def rooms() -> str:
    """The rooms, from the lowest floor to the top: what is in each, and what may not be."""
    lines = ["| floor | room | what is in it |", "|---|---|---|"]
    for floor in range(len(FLOORS)):
        for room in rooms_on(floor):
            what, not_here = sentences(room)
            path = f"{room}/" if (SOURCE / room).is_dir() else f"{room}.py"
            lines.append(f"| {floor} | `{path}` | {what}{f' Not here: {not_here}' if not_here else ''} |")
    return "\n".join(lines)


def example(name: str) -> str:
    """A program of docs/examples, as it is."""
    source = (ROOT / "docs" / "examples" / f"{name}.py").read_text(encoding="utf-8")
    return f"```python\n{source}```"


def approval_rules() -> str:
    """The rules of the refund desk."""
    source = (ROOT / "docs" / "examples" / "approvals.toml").read_text(encoding="utf-8")
    return f"```toml\n{source}```"


PARTS: dict[str, Callable[[], str]] = {
    "rooms": rooms,
    "chat-service": partial(example, "chat_service"),
    "chat-stream": partial(example, "chat_stream"),
    "refund-desk": partial(example, "refund_desk"),
    "approvals": approval_rules,
    "celery-loops": partial(example, "celery_loops"),
    "temporal-loops": partial(example, "temporal_loops"),
    "temporal-machine": partial(example, "temporal_machine"),
    "state-table": state_table,
    "stop-reasons": stop_reasons,
    **{door: partial(reference_page, door) for door in DOORS},
}


def stub(package: str) -> str:
    """The names of a package as type checkers read them, from the table that it imports them by."""
    module = vars(importlib.import_module(package))
    lines = ["# Written by `make docs` from the tables in __init__.py.", ""]
    lines += [f"from . import {name} as {name}" for name in module.get("_MODULES", ())]
    lines += [f"from {origin} import {name}" for origin, names in module["_ORIGIN"].items() for name in names]
    lines += ["", "__version__: str"] if "__version__" in module else []
    return "\n".join([*lines, "", "__all__ = [", *(f'    "{name}",' for name in module["__all__"]), "]", ""])


def renewed(text: str) -> str:
    """A page with its generated parts made anew."""
    return _PART.sub(lambda found: f"{found['start']}\n{PARTS[found['name']]()}\n\n{found['end']}", text)


def main() -> int:
    """Write, or check."""
    parser = argparse.ArgumentParser(description="Write the generated parts of the docs.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a part is stale")
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder with README.md and docs/")
    arguments = parser.parse_args()
    pages = sorted([arguments.root / "README.md", *(arguments.root / "docs").rglob("*.md")])
    wanted = {page: renewed(page.read_text(encoding="utf-8")) for page in pages}
    wanted |= {arguments.root / "docs" / "images" / f"{name}.svg": picture() for name, picture in PICTURES.items()}
    wanted |= {arguments.root / "src" / name.replace(".", "/") / "__init__.pyi": stub(name) for name in LAZY}
    stale = []
    for file, new in wanted.items():
        if not file.exists() or new != file.read_text(encoding="utf-8"):
            stale.append(file.relative_to(arguments.root))
            if not arguments.check:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(new, encoding="utf-8")
    for page in stale:
        told = "is stale: run `make docs`" if arguments.check else "written"
        print(f"{page} {told}", file=sys.stderr if arguments.check else sys.stdout)
    return 1 if stale and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
