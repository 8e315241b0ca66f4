"""Write the generated parts of the docs: what the code knows, the docs need not repeat by hand.

    python scripts/docs.py            write them
    python scripts/docs.py --check    change nothing; exit 1 and name the files that are stale

A generated part stands between `<!-- generated: NAME -->` and `<!-- end of generated part -->`.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cached_property, partial
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, is_typeddict

from toolloop import machine
from toolloop.machine import STOP_REASONS, TRANSITIONS

ROOT = Path(__file__).parents[1]
MODULES = (
    "",
    "errors",
    "terminations",
    "events",
    "responses",
    "compaction",
    "tools",
    "tools.mcp",
    "providers",
    "history",
    "types",
    "machine",
    "stores",
    "inbox",
    "otel",
    "testing",
)
_PART = re.compile(
    r"(?P<start><!-- generated: (?P<name>[\w-]+) -->\n).*?(?P<end><!-- end of generated part -->)", re.DOTALL
)
# Constants have no docstring of their own.
CONSTANTS = {
    "Block": "A content block, in the shape of the API.",
    "FORMAT": "The number of the format that is written; see [the format](format.md).",
    "JSON": "Any JSON value. For type checkers it is `Any`.",
    "NOT_RUN": "The result that `repair` gives to a call without one.",
    "NO_WORDS": "The text that `repair` gives to an error result without a text.",
    "OPTION_NAMES": "The parameters that go beside the body of a request.",
    "RULES": "The rules of a history, by id; see [the rules of a history](history-rules.md).",
    "SUMMARY_PROMPT": "What `Summarize` asks the model, after the messages that it is to summarize.",
    "SECRET_OPTIONS": "The parameters that never enter a snapshot.",
    "STOP_REASONS": "What becomes of a reply, by its stop reason; see [stop reasons](stop-reasons.md).",
    "TRANSITIONS": "The table: phase, event, rule; see [the phases of a loop](concepts.md#the-phases-of-a-loop).",
}
# Made by a handle, never by a caller: their constructors are no part of the contract.
HANDED_OUT = frozenset(
    [
        *("AsyncEventStream", "AsyncReplyStream", "AsyncTurnStream", "EventStream", "GivenGrant", "Grants"),
        *("OpeningLoop", "ReplyStream", "SubLoop", "Tool", "ToolCall", "TurnStream", "View", "WatchedLoop", "Yielded"),
    ]
)
LONGEST_DEFAULT = 40
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


def reference() -> str:
    """Every public name by module, with its signature and its first line. What is in two modules is told once."""
    told: dict[int, str] = {}
    lines: list[str] = []
    for door in MODULES:
        path = f"toolloop.{door}" if door else "toolloop"
        module = importlib.import_module(path)
        lines += [f"## `{path}`", "", first_line(module), ""]
        for name in module.__all__:
            value = getattr(module, name)
            own = f"{path}.{name}"
            lines += [f"### `{own}`", ""]
            if name not in CONSTANTS and (inspect.isclass(value) or inspect.isfunction(value)):
                before = told.setdefault(id(value), own)
                lines += [f"See [`{before}`](#{slug(before)}).", ""] if before != own else [*entry(name, value), ""]
            else:
                lines += [constant(name, value), ""]
    return "\n".join(lines).strip()


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def entry(name: str, value: Any) -> Iterator[str]:
    """A class or a function: signature, first line, and the members of a class."""
    yield f"`{name}{signature(value)}`" if not _is_bare(value) else f"`{name}`"
    yield ""
    yield first_line(value)
    told = list(sections(value))
    members = list(_members(value)) if inspect.isclass(value) else []
    if told or members:
        yield ""
    yield from told
    for member, found in members:
        yield f"- `{member}{'' if _is_read(found) else signature(found)}`: {first_line(_unwrapped(found))}"
    if inspect.isclass(value) and issubclass(value, Enum):
        yield ""
        yield "One of " + ", ".join(f"`{item.name}`" for item in value) + "."


def sections(value: Any) -> Iterator[str]:
    """What the docstring says of arguments, attributes and errors, a line each."""
    heading, lines = "", [*(inspect.getdoc(value) or "").splitlines(), ""]
    item = ""
    for line in lines:
        if item and not line.startswith("     "):
            name, _, text = item.partition(": ")
            yield f"- {'raises ' if heading == 'Raises:' else ''}`{name}`: {text}"
            item = ""
        if not line.startswith(" "):
            heading = line or heading
        elif heading in ("Args:", "Attributes:", "Raises:"):
            item = f"{item} {line.strip()}".strip()


def _is_bare(value: Any) -> bool:
    """Classes whose constructor is nobody's, or says nothing."""
    if not inspect.isclass(value):
        return False
    return (
        value.__name__ in HANDED_OUT
        or is_typeddict(value)
        or issubclass(value, Enum)
        or getattr(value, "_is_protocol", False)
    )


def _is_read(member: object) -> bool:
    return isinstance(member, (property, cached_property))


def _unwrapped(member: Any) -> Any:
    return member.__func__ if isinstance(member, (classmethod, staticmethod)) else member


def _members(value: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class has from toolloop, those of its bases too."""
    if issubclass(value, Enum):
        return
    seen: set[str] = set()
    for owner in value.__mro__:
        if not owner.__module__.startswith("toolloop"):
            continue
        for name, member in vars(owner).items():
            is_member = _is_read(member) or inspect.isfunction(_unwrapped(member))
            if name.startswith("_") or name in seen or not is_member:
                continue
            seen.add(name)
            yield name, member


def signature(value: Any) -> str:
    """The parameters and what comes back, as a caller writes them."""
    found = inspect.signature(_unwrapped(value))
    shown = [parameter for parameter in found.parameters.values() if parameter.name not in ("self", "cls")]
    text = f"({', '.join(_separated(shown))})"
    if inspect.isclass(value) or found.return_annotation in ("None", inspect.Signature.empty):
        return text
    return f"{text} -> {annotation(found.return_annotation)}"


def _separated(parameters: list[inspect.Parameter]) -> Iterator[str]:
    previous: Any = None
    for parameter in parameters:
        if previous is inspect.Parameter.POSITIONAL_ONLY and parameter.kind is not previous:
            yield "/"
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and previous not in (
            parameter.kind,
            inspect.Parameter.VAR_POSITIONAL,
        ):
            yield "*"
        previous = parameter.kind
        yield _shown(parameter)


def _shown(parameter: inspect.Parameter) -> str:
    stars = "*" if parameter.kind is inspect.Parameter.VAR_POSITIONAL else ""
    stars = "**" if parameter.kind is inspect.Parameter.VAR_KEYWORD else stars
    typed = parameter.annotation is not inspect.Parameter.empty
    text = f"{stars}{parameter.name}" + (f": {annotation(parameter.annotation)}" if typed else "")
    if parameter.default is inspect.Parameter.empty:
        return text
    default = parameter.default
    plain = default is None or isinstance(default, (str, int, float, bool, tuple, bytes))
    plain = plain and len(repr(default)) <= LONGEST_DEFAULT
    return f"{text}{' = ' if typed else '='}{repr(default) if plain else '...'}"


def annotation(value: Any) -> str:
    """An annotation as it is written in the code."""
    text = value if isinstance(value, str) else value.__name__ if isinstance(value, type) else str(value)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)


def constant(name: str, value: Any) -> str:
    """A type with a name, or a constant."""
    if name in CONSTANTS:
        return CONSTANTS[name]
    if get_origin(value) is Literal:
        return "One of " + ", ".join(f"`{part!r}`" for part in get_args(value)) + "."
    parts = get_args(value) if isinstance(value, UnionType) else [value]
    return ("One of " if len(parts) > 1 else "") + ", ".join(f"`{_part(part)}`" for part in parts) + "."


def _part(value: Any) -> str:
    return "None" if value is type(None) else annotation(value)


def first_line(value: Any) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def example(name: str) -> str:
    """A program of docs/examples, as it is."""
    source = (ROOT / "docs" / "examples" / f"{name}.py").read_text(encoding="utf-8")
    return f"```python\n{source}```"


PARTS: dict[str, Callable[[], str]] = {
    "chat-service": partial(example, "chat_service"),
    "state-diagram": state_diagram,
    "state-table": state_table,
    "stop-reasons": stop_reasons,
    "reference": reference,
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
