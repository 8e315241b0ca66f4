"""The pictures of the docs, as SVG: `make docs` writes them, and `scripts/docs.py --check` finds one that is stale.

They are narrow, so that their text can be read on a phone, and have a background of their own for dark pages.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from scripts.rooms import FLOOR, FLOORS, imported_rooms, rooms_on
from toolloop import machine
from toolloop.machine import TRANSITIONS

WIDTH = 520
_STYLE = """
text { font: 14px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1f2430 }
.small { font-size: 12px; fill: #4a5162 } .strong { font-weight: 600 }
.step { fill: #eef1fb; stroke: #5564b7 } .you { fill: #fff4dc; stroke: #b9801c }
.store { fill: #e7f4ec; stroke: #3d8a5c }
.bad { fill: #fdebec; stroke: #b8434c } .end { fill: #f2f2f4; stroke: #767b88 }
.label { font-size: 12px; fill: #4a5162; stroke: #ffffff; stroke-width: 5; paint-order: stroke }
.label { font-size: 12px; fill: #4a5162; stroke: #ffffff; stroke-width: 5; paint-order: stroke }
.line { fill: none; stroke: #4a5162; stroke-width: 1.5 } .dashed { stroke-dasharray: 5 4 }
"""
_TIP = (
    '<marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L10 5L0 10z" fill="#4a5162"/></marker>'
)


def svg(title: str, height: int, *parts: str) -> str:
    """Return a picture with a title, which screen readers read."""
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style>",
            f"<defs>{_TIP}</defs>",
            f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        )
    )


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    """A line of text; y is its baseline."""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def box(x: float, y: float, width: float, kind: str, *lines: str) -> str:
    """A box with a strong first line; it is 18 high for each line, and 18 more."""
    height = 18 * len(lines) + 14
    return "\n".join(
        (
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" class="{kind}"/>',
            *(
                text(x + width / 2, y + 22 + 18 * row, line, "small" if row else "strong")
                for row, line in enumerate(lines)
            ),
        )
    )


def arrow(*points: tuple[float, float], dashed: bool = False) -> str:
    """A line through the points, with a tip at its end."""
    way = " ".join(f"{x},{y}" for x, y in points)
    return f'<polyline points="{way}" class="line{" dashed" if dashed else ""}" marker-end="url(#tip)"/>'


def way_of_a_call() -> str:
    """What happens to a call, and what is stored before the next step."""
    steps = [
        ("step", ("Reply", "Claude asks for the call"), "Replied"),
        ("step", ("Judge", "policies, needs_approval, limits"), "Judged"),
        ("you", ("Decide", "you approve, edit, deny or answer", "denied or answered: it does not start"), "Decided"),
        ("store", ("Start", "stored before the tool runs"), "Started"),
        ("step", ("Run", "your function, in a thread or a task"), ""),
        ("step", ("End", "the result, or the error"), "Ended"),
        ("step", ("Close the round", "all results, in the model's order"), "TurnEnded"),
    ]
    parts = [text(170, 28, "the loop", "small"), text(430, 28, "stored in the journal", "small")]
    y, middles = 44.0, list[float]()
    for kind, lines, event in steps:
        height = 18 * len(lines) + 14
        middles.append(y + height / 2)
        parts.append(box(40, y, 260, kind, *lines))
        if len(middles) > 1:
            parts.append(arrow((170, y - 26), (170, y)))
        if event:
            getattr(machine, event)  # it exists
            parts += [arrow((300, middles[-1]), (380, middles[-1])), box(380, middles[-1] - 16, 100, "store", event)]
        y += height + 26
    judge, start = middles[1], middles[3]
    parts.append(arrow((40, judge), (18, judge), (18, start), (40, start), dashed=True))
    return svg("The way of a call: reply, judge, decide, start, run, end, close", round(y), *parts)


def phases() -> str:
    """The usual ways through the phases. Each arrow is in the table of the machine."""
    at = {
        "Ready": (30, 50),
        "Requesting": (330, 50),
        "Judging": (330, 190),
        "Running": (330, 330),
        "Waiting": (30, 330),
        "Failed": (30, 190),
        "Finished": (190, 440),
    }
    kinds = {"Waiting": "you", "Failed": "bad", "Finished": "end"}
    says = {
        "Ready": "a request is next",
        "Requesting": "Claude answers",
        "Judging": "may the calls run?",
        "Running": "the tools run",
        "Waiting": "it is your turn",
        "Failed": "it is your turn",
        "Finished": "the loop has ended",
    }
    parts = [box(x, y, 160, kinds.get(name, "step"), name, says[name]) for name, (x, y) in at.items()]

    def edge(start: str, event: str, end: str, label: tuple[float, float, str], *points: tuple[float, float]) -> None:
        found = {kind.__name__: rule for kind, rule in TRANSITIONS[getattr(machine, start)].items()}[event]
        if getattr(machine, end) not in found.to:
            raise ValueError(f"{start} --{event}--> {end} is not in the table")
        parts.extend((arrow(*points), text(label[0], label[1], event, "small", label[2])))

    edge("Ready", "Requested", "Requesting", (260, 60, "middle"), (190, 67), (330, 67))
    edge("Requesting", "Woken", "Ready", (260, 100, "middle"), (330, 85), (190, 85))
    edge("Requesting", "Replied", "Judging", (418, 150, "start"), (410, 100), (410, 190))
    edge("Requesting", "RequestFailed", "Failed", (256, 148, "end"), (345, 100), (190, 200))
    edge("Judging", "Judged", "Running", (418, 290, "start"), (410, 240), (410, 330))
    edge("Judging", "Judged", "Waiting", (262, 264, "middle"), (345, 240), (190, 340))
    edge("Waiting", "Continued", "Running", (260, 350, "middle"), (190, 356), (330, 356))
    edge("Running", "TurnEnded", "Waiting", (260, 388, "middle"), (330, 372), (190, 372))
    edge("Failed", "Continued", "Ready", (102, 150, "end"), (110, 190), (110, 100))
    edge("Waiting", "Continued", "Ready", (20, 290, "start"), (30, 356), (14, 356), (14, 75), (30, 75))
    edge("Requesting", "Replied", "Finished", (500, 470, "end"), (490, 75), (506, 75), (506, 480), (350, 480))
    edge("Waiting", "Stopped", "Finished", (102, 470, "end"), (110, 380), (110, 480), (190, 480))
    return svg("The usual ways through the phases of a loop", 510, text(110, 30, "Opened", "small"), *parts)


def who_decides() -> str:
    """Many processes may decide; one drives."""
    parts = [
        text(260, 28, "many may decide", "strong"),
        box(20, 44, 150, "you", "Approval page", "toolloop serve"),
        box(185, 44, 150, "you", "Command", "toolloop approve"),
        box(350, 44, 150, "you", "Your own page", "Inbox"),
        *(arrow((x, 94), (x, 140)) for x in (95, 260, 425)),
        text(270, 122, "decisions", "small", "start"),
        box(20, 140, 480, "store", "Store", "the journal of each loop, and the lease of its driver"),
        arrow((200, 190), (200, 252)),
        arrow((320, 252), (320, 190)),
        text(192, 226, "decisions", "small", "end"),
        text(328, 226, "every event, before it acts", "small", "start"),
        box(80, 252, 360, "step", "Driver: a handle or a Worker", "holds the lease: one process for each loop"),
        text(260, 326, "one drives", "strong"),
        arrow((180, 302), (180, 350)),
        arrow((340, 302), (340, 350)),
        box(80, 350, 180, "end", "Claude", "the Messages API"),
        box(280, 350, 180, "end", "Your tools", "only after Started is stored"),
    ]
    return svg("Many processes decide through the store; one process drives the loop", 424, *parts)


def crash() -> str:
    """Three moments of a crash, and what the next process knows."""
    rows = [
        (96, "Crash before Started is stored", "end", ("The call has not run.", "It starts as usual.")),
        (
            226,
            "Crash while the tool runs",
            "bad",
            ("The call is uncertain.", "You decide: Rerun, Answer or Deny.", "A pure or keyed tool runs again."),
        ),
        (386, "Crash after Ended is stored", "end", ("The result is known.", "The loop continues with it.")),
    ]
    parts = [
        text(105, 28, "the driver", "small"),
        text(360, 28, "what the next process knows", "small"),
        box(30, 44, 150, "step", "Approved"),
        box(30, 164, 150, "store", "Started", "is stored"),
        box(30, 324, 150, "store", "Ended", "is stored"),
        box(30, 444, 150, "step", "Round closed"),
        arrow((105, 76), (105, 164)),
        arrow((105, 214), (105, 324)),
        arrow((105, 374), (105, 444)),
        text(112, 284, "the tool runs", "small", "start"),
    ]
    for y, what, kind, lines in rows:
        parts += [
            text(105, y + 30, "✕", "strong"),
            arrow((118, y + 25), (225, y + 25), dashed=True),
            box(225, y, 280, kind, *lines),
            text(365, y - 8, what, "small"),
        ]
    return svg("Three moments of a crash, and what is known after each", 496, *parts)


def runner() -> str:
    """One iteration of a runner: who sends what to whom."""
    at = {"Your code": 70, "Runner": 200, "Claude": 330, "Your tools": 450}
    kinds = {"Your code": "you", "Runner": "step", "Claude": "end", "Your tools": "step"}
    bottom = 590
    parts = [f'<path d="M{x} 46V{bottom}" class="line dashed"/>' for x in at.values()]
    parts += [box(x - 52, 14, 104, kinds[name], name) for name, x in at.items()]

    def send(y: float, start: str, end: str, words: str, *, back: bool = False) -> None:
        parts.append(text((at[start] + at[end]) / 2, y - 7, words, "label"))
        parts.append(arrow((at[start], y), (at[end], y), dashed=back))

    send(84, "Your code", "Runner", "next message")
    send(118, "Runner", "Claude", "1 request")
    send(152, "Claude", "Runner", "reply", back=True)
    send(186, "Runner", "Your code", "2 yield the reply", back=True)
    parts.append(box(15, 206, 260, "you", "3 Your code runs", "reads, appends, changes parameters"))
    send(288, "Your code", "Runner", "next message")
    ours, theirs = "unchanged: the reply is appended", "changed: it is what your code made"
    parts.append(box(140, 308, 365, "step", "4 Whose history?", ours, theirs))
    parts.append(box(140, 394, 365, "step", "5 Does it end with open calls?", "then they are judged and run"))
    send(474, "Runner", "Your tools", "run")
    send(508, "Your tools", "Runner", "results, appended as one message", back=True)
    parts.append(box(140, 528, 365, "end", "6 The end, or the next request (1)"))
    return svg("One iteration of a runner: request, yield, your code, history, calls, end", bottom + 10, *parts)


def rooms() -> str:
    """Which room imports which. Tinted: the floors below a room, from which alone it may import."""
    left, top, row = 138, 104, 17
    column = min(row, (WIDTH - 8 - left) // len(FLOOR))
    middle = {room: left + column * at + column / 2 for at, room in enumerate(FLOOR)}
    parts = [
        f'<text transform="translate({x + 4} {top - 8}) rotate(-90)" class="small">{room}</text>'
        for room, x in middle.items()
    ]
    y = top
    for floor in range(len(FLOORS)):
        allowed = column * sum(map(len, FLOORS[:floor]))
        height = row * len(rooms_on(floor))
        parts += [
            f'<rect x="{left}" y="{y}" width="{allowed}" height="{height}" fill="#eef1fb"/>',
            f'<path d="M8 {y}H{left + column * len(FLOOR)}" stroke="#d5d8e2"/>',
            text(24, y + 13, str(floor), "small", "end"),
        ]
        for room in rooms_on(floor):
            outer, _, inner = room.partition("/")
            if inner:
                parts.append(text(48, y + 13, f"/ {inner}", "small", "start"))
            else:
                parts.append(text(34, y + 13, outer, "strong", "start"))
                parts.append(f'<rect x="{middle[room] - 5.5}" y="{y + 3}" width="11" height="11" fill="#c9cdd8"/>')
            parts += [
                f'<circle cx="{middle[each]}" cy="{y + 8.5}" r="{3 if inner else 4.5}" fill="#3f4fa8"/>'
                for each in imported_rooms(room)
            ]
            y += row
    parts += [
        text(24, top - 8, "floor", "small", "start"),
        text(left, y + 24, "A dot: the room of the row imports the room of the column.", "small", "start"),
        text(left, y + 42, "Tinted: the floors below, from which a room may import.", "small", "start"),
    ]
    return svg("Which room imports which: each imports only from the floors below it", y + 56, *parts)


PICTURES: dict[str, Callable[[], str]] = {
    "way-of-a-call": way_of_a_call,
    "phases": phases,
    "who-decides": who_decides,
    "crash": crash,
    "rooms": rooms,
    "runner": runner,
}
