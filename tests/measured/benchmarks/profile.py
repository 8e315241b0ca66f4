"""Where a turn goes: the bytecodes that Python carries out in it, by the part of the code they are of.

`python -m tests.measured.benchmarks.profile [--functions N]` holds the benchmark's conversation over HTTP, and prints a
Markdown table: for toolloop, and for the loop over the SDK client's own `post` that it is measured against. Bytecodes
do not measure time (they leave out C), but they are the same in every run, and they say which code to look at.
"""

from __future__ import annotations

import sys
from collections import Counter
from importlib import import_module
from types import CodeType, FrameType
from typing import Any

from tests.measured.benchmarks.server import serving

TURNS = 30
_WARM_UP = 5
# The first of these that a file's path holds names its part.
_PARTS = (
    ("toolloop/machine/", "toolloop: the machine"),
    ("toolloop/_interface/", "toolloop: the driver"),
    ("toolloop/_journal/", "toolloop: the driver"),
    ("toolloop/_engine/", "toolloop: the driver"),
    ("toolloop/_drivers/", "toolloop: the driver"),
    ("toolloop/_handles/", "toolloop: the driver"),
    ("toolloop/_requests/", "toolloop: the requests"),
    ("toolloop/tools/", "toolloop: tools"),
    ("toolloop/providers/", "toolloop: the provider"),
    ("<", "toolloop: attrs (constructors, evolve)"),
    ("/attr/", "toolloop: attrs (constructors, evolve)"),
    ("tests/measured/benchmarks/", "the benchmark: its tool, its loop"),
    ("/anthropic/", "the SDK"),
    ("/pydantic/", "the SDK"),
    ("/httpx2/", "httpx2"),
    ("/httpcore2/", "httpcore2, h11"),
    ("/h11/", "httpcore2, h11"),
    ("", "the standard library"),
)


def counts(name: str) -> Counter[CodeType]:
    """The bytecodes of a contestant's conversation, by the code they are of."""
    contestant = import_module(f"tests.measured.benchmarks.contestants.{name}")
    found: Counter[CodeType] = Counter()

    def inside(frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "opcode":
            found[frame.f_code] += 1
        return inside

    def entering(frame: FrameType, _event: str, _argument: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return inside

    with serving() as url, contestant.connect(url) as client:
        contestant.conversation(client, _WARM_UP)()
        converse = contestant.conversation(client, TURNS)
        before = sys.gettrace()
        sys.settrace(entering)
        try:
            converse()
        finally:
            sys.settrace(before)
    return found


def by_part(found: Counter[CodeType]) -> dict[str, float]:
    """Bytecodes per turn, by the part of the code."""
    parts: dict[str, float] = dict.fromkeys((name for _, name in _PARTS), 0)
    for code, count in found.items():
        part = next(name for mark, name in _PARTS if mark in code.co_filename)
        parts[part] += count / TURNS
    return parts


def main(functions: int) -> None:
    """Print the table, and the dearest functions of toolloop."""
    own = counts("toolloop_handle")
    parts, post = by_part(own), by_part(counts("client_post"))
    lines = ["| part | toolloop | the client's `post` |", "|---|---:|---:|"]
    lines += [f"| {name} | {parts[name]:,.0f} | {post[name]:,.0f} |" for name in parts]
    lines.append(f"| **all** | **{sum(parts.values()):,.0f}** | **{sum(post.values()):,.0f}** |")
    for code, count in own.most_common(functions):
        lines.append(f"{count / TURNS:9.1f}  {code.co_qualname}  {code.co_filename}:{code.co_firstlineno}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[2]) if sys.argv[1:2] == ["--functions"] else 0)
