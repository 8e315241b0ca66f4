"""Write the generated parts of the docs: what the code knows, the docs need not repeat by hand.

    python scripts/docs.py            write them
    python scripts/docs.py --check    change nothing; exit 1 and name the files that are stale

A generated part stands between `<!-- generated: NAME -->` and `<!-- end of generated part -->`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from toolloop import machine
from toolloop.machine import STOP_REASONS, TRANSITIONS

ROOT = Path(__file__).parents[1]
_PART = re.compile(
    r"(?P<start><!-- generated: (?P<name>[\w-]+) -->\n).*?(?P<end><!-- end of generated part -->)", re.DOTALL
)
# Possible in nearly every phase, which the loop then keeps: drawn, they would hide the rest.
_QUIET = frozenset(
    {
        machine.Changed,
        machine.Woken,
        machine.HistoryEdited,
        machine.GrantRevoked,
        machine.Ended,
        machine.Ticked,
    }
)


def state_diagram() -> str:
    """The table as a diagram, without the events that leave a loop in its phase and are possible in nearly all."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> Ready: Opened"]
    for state, row in TRANSITIONS.items():
        edges: dict[str, list[str]] = {}
        for event, rule in row.items():
            for target in rule.to:
                if target is not state or event not in _QUIET:
                    edges.setdefault(target.__name__, []).append(event.__name__)
        lines += [f"    {state.__name__} --> {target}: {', '.join(events)}" for target, events in edges.items()]
    return "\n".join((*lines, "```"))


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
    lines = ["| stop reason | what becomes of the reply | action |", "|---|---|---|"]
    lines += [f"| `{reason}` | {action.value} | `{action.name}` |" for reason, action in STOP_REASONS.items()]
    return "\n".join(lines)


def example(name: str) -> str:
    """A program of docs/examples, as it is."""
    source = (ROOT / "docs" / "examples" / f"{name}.py").read_text(encoding="utf-8")
    return f"```python\n{source}```"


PARTS: dict[str, Callable[[], str]] = {
    "chat-service": partial(example, "chat_service"),
    "state-diagram": state_diagram,
    "state-table": state_table,
    "stop-reasons": stop_reasons,
}


def renewed(text: str) -> str:
    """A page with its generated parts made anew."""
    return _PART.sub(lambda found: f"{found['start']}\n{PARTS[found['name']]()}\n\n{found['end']}", text)


def main() -> int:
    """Write, or check."""
    parser = argparse.ArgumentParser(description="Write the generated parts of the docs.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a part is stale")
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder with README.md and docs/")
    arguments = parser.parse_args()
    stale = []
    for page in sorted([arguments.root / "README.md", *(arguments.root / "docs").rglob("*.md")]):
        text = page.read_text(encoding="utf-8")
        if (new := renewed(text)) != text:
            stale.append(page.relative_to(arguments.root))
            if not arguments.check:
                page.write_text(new, encoding="utf-8")
    for page in stale:
        told = "is stale: run `make docs`" if arguments.check else "written"
        print(f"{page} {told}", file=sys.stderr if arguments.check else sys.stdout)
    return 1 if stale and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
