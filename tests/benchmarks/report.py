"""The tables of the report: targets first, then ratios, then the figures that they are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import evolve

from tests.benchmarks.contest import CONTESTANTS, LABELS, Contestant
from tests.benchmarks.figures import Checkpoints, Figures
from tests.benchmarks.instructions import HIGH, LOW
from tests.benchmarks.journal import BY_HAND
from tests.benchmarks.listing import RUNS as LISTINGS
from tests.benchmarks.rounds import OPENINGS
from tests.benchmarks.tables import Row, Table
from tests.benchmarks.targets import Target, targets
from tests.benchmarks.waking import RUNS as FOLDINGS

NONE = "-"

_OWN, _POST = "toolloop_handle", "client_post"
_PER_TURN = (
    "The figure of a length is the CPU time of a whole conversation of so many turns, by its turns. Where the cost "
    "grows, the last turns cost more than that. The median of so many runs; of two it is their mean."
)


def tables(figures: Figures) -> Iterator[Table]:
    """All of them, in their order."""
    yield _targets(figures)
    yield _ratios(figures)
    yield _milliseconds(figures)
    yield _instructions(figures)
    yield _kept(figures)
    yield _written(figures)
    yield _stores(figures)


def _targets(figures: Figures) -> Table:
    rows = [
        (each.what, NONE if each.figure is None else _with_unit(each.figure, each), _bound(each), each.verdict)
        for each in targets(figures)
    ]
    note = (
        "Imports and the listing by the clock on the wall; all other times are CPU time. Ratios of contestants are "
        f"those of the next table. A time of the machine is the median of {figures.repeats} runs, of an import of "
        f"{figures.starts}, of the listing of {LISTINGS}, of waking of {OPENINGS}; sizes and transactions are of one."
    )
    return Table("Targets", ("what", "figure", "target", "verdict"), rows, note)


def _bound(target: Target) -> str:
    return f"{'at least' if target.at_least else 'at most'} {target.bound:g} {target.unit}".rstrip()


def _with_unit(figure: float, target: Target) -> str:
    # Four digits, so that one that is just beyond its bound does not look like it.
    return f"{figure:,.4g} {target.unit}".rstrip()


def _ratios(figures: Figures) -> Table:
    lengths = _lengths(figures)
    heads = [f"x {of} at {turns}" for of in ("post", "toolloop") for turns in lengths]
    over = [(of, turns) for of in (_POST, _OWN) for turns in lengths]

    def cells(name: str) -> list[str]:
        ratios = (figures.ratio(name, of, turns) for of, turns in over)
        return [NONE if ratio is None else _short(ratio) for ratio in ratios]

    note = (
        "How many times the CPU time of a loop over the SDK client's own post of ready bytes each takes, and how many "
        f"times toolloop's, at {_and(lengths)} turns. All but the runner with threads send the full history each turn; "
        "that one leaves it to the API, and sends what is new. A run is divided by the other's run of the same round, "
        "and the median of these ratios counts: so they are not quite those of the milliseconds below."
    )
    rows = [(_label(each, figures), *cells(each.name)) for each in CONTESTANTS]
    return Table("CPU per turn: ratios", ("", *heads), rows, note)


def _milliseconds(figures: Figures) -> Table:
    lengths = _lengths(figures)

    def cells(name: str) -> list[str]:
        own = figures.cpu.get(name, {})
        runs = str(len(figures.samples.get(name, ())))
        return [runs, *(f"{own[turns] * 1e3:.3f}" if turns in own else NONE for turns in lengths)]

    rows = [(_label(each, figures), *cells(each.name)) for each in CONTESTANTS]
    heads = ("", "runs", *(f"{turns} turns" for turns in lengths))
    return Table("CPU per turn: milliseconds", heads, rows, _PER_TURN)


def _label(contestant: Contestant, figures: Figures) -> str:
    why = figures.left_out.get(contestant.name)
    return contestant.label if why is None else f"{contestant.label} (not measured: {why})"


def _lengths(figures: Figures) -> list[int]:
    return list(figures.cpu[_OWN])


def _instructions(figures: Figures) -> Table:
    counted = figures.counted
    if isinstance(counted, str):
        return Table("Instructions", ("", "millions"), [(f"not measured here: {counted}", NONE)])
    length = min(_lengths(figures), key=lambda turns: abs(turns - 100))
    post, own = counted.turns[_POST], counted.turns[_OWN]
    spread = abs(counted.again - own) / own

    def by_cpu(name: str) -> str:
        ratio = figures.ratio(name, _POST, length)
        return NONE if ratio is None else _short(ratio)

    rows: list[Row] = [
        (f"{LABELS[name]}, a turn", _millions(each), _short(each / post), by_cpu(name))
        for name, each in counted.turns.items()
    ]
    rows += [
        (f"the pure machine, a turn at round {round_:,}", _millions(each), _short(each / post), NONE)
        for round_, each in counted.machine.items()
    ]
    rows += [(f"`{statement}`", _millions(each), NONE, NONE) for statement, each in counted.imports.items()]
    note = (
        f"Counted by `{counted.by}`, as the difference of a run of {LOW} turns and one of {HIGH}. Other work on the "
        "machine hardly moves these figures: toolloop's turn was counted twice, and the counts differ by "
        f"{spread:.2%}. All others are of one count. Beside the ratio to the client's post stands that of CPU time at "
        f"{length} turns, which noise does move."
    )
    return Table("Instructions", ("", "millions", "x post", f"x post, CPU at {length} turns"), rows, note)


def _kept(figures: Figures) -> Table:
    own = figures.kept

    def row(label: str, size: int) -> Row:
        return label, f"{size / 1e6:.3f}", f"{size / own.raw:.2f}"

    rows = [
        row("raw JSON of its messages", own.raw),
        row("toolloop, SqliteStore: the file", own.file),
        row(f"of it, {own.events:,} events", own.bodies),
        row("of it, their names", own.names),
        row("of it, indexes, and room in pages", own.file - own.bodies - own.names),
        *(row(_channels(kind), other.file) for kind, other in _checkpoints(figures)),
    ]
    note = "One call a round, 200 bytes in and 1 KB out. The file and its log, after a checkpoint."
    return _with_missing(Table(f"The journal of {own.rounds:,} rounds", ("", "MB", "x raw"), rows, note), figures)


def _written(figures: Figures) -> Table:
    own = figures.kept
    marks = list(own.handed)

    def row(label: str, sizes: Mapping[int, float]) -> Row:
        return (label, *(f"{sizes[mark] / 1e3:.3f}" if mark in sizes else NONE for mark in marks))

    rows = [
        row("toolloop, `run()`, handed to the store", own.handed),
        row("toolloop, `run()`, written by the process", own.written),
        row("toolloop, by hand, written by the process", own.by_hand),
        *(row(f"{_channels(kind)}, written by the process", other.written) for kind, other in _checkpoints(figures)),
    ]
    heads = ("KB per turn", *(f"round {mark:,}" for mark in marks))
    note = (
        "Means of the fifty rounds up to each, in one run. SQLite writes whole pages, to its log and then to the file. "
        "`run()` and the peer's `invoke` hold the whole conversation in one call, and each step is stored before the "
        "next begins. By hand each turn is a call, with up to twice as many writes."
    )
    return _with_missing(Table("Bytes written per turn", heads, rows, note), figures)


def _stores(figures: Figures) -> Table:
    own = figures.kept
    waking = f"waking {own.rounds:,} rounds"

    def row(label: str, seconds: float) -> Row:
        return label, f"{seconds * 1e3:.3f}"

    rows = [
        *(row(f"a turn, toolloop, {_driven(name)}", seconds) for name, seconds in figures.stores.items()),
        *(row(f"a turn, {_channels(kind)}", other.cpu) for kind, other in _checkpoints(figures)),
        row(f"{waking}, toolloop", own.waking),
        row(f"{waking}, toolloop, from the texts of the events alone", figures.folding),
        *(row(f"{waking}, {_channels(kind)}", other.waking) for kind, other in _checkpoints(figures)),
    ]
    note = (
        "The model is a function here: no HTTP, and no client. A turn is the mean of the first "
        f"{figures.store_turns:,} turns of a conversation in a new file, for both; held by one `run()`, by one "
        f"`invoke`, or by hand, turn by turn. The median of {figures.repeats} such conversations; of waking, "
        f"of {OPENINGS}, and from the texts alone of {FOLDINGS}."
    )
    return _with_missing(Table("CPU of the stores", ("", "ms"), rows, note), figures)


def _checkpoints(figures: Figures) -> Iterator[tuple[str, Checkpoints]]:
    for kind, other in figures.checkpoints.items():
        if isinstance(other, Checkpoints):
            yield kind, other


def _with_missing(table: Table, figures: Figures) -> Table:
    """With a row for each kind of the peer's journals that was not measured."""
    empty = [NONE] * (len(table.columns) - 1)
    missing = [
        (f"{_channels(kind)} (not measured: {why})", *empty)
        for kind, why in figures.checkpoints.items()
        if isinstance(why, str)
    ]
    return evolve(table, rows=[*table.rows, *missing])


def _driven(store: str) -> str:
    return store if store == BY_HAND else f"{store}, `run()`"


def _channels(kind: str) -> str:
    return f"LangGraph's checkpointer, {kind} channels"


def _short(figure: float) -> str:
    """Three digits or more."""
    return f"{figure:.2f}" if figure < 10 else f"{figure:.1f}" if figure < 100 else f"{figure:,.0f}"


def _millions(count: float) -> str:
    return f"{count / 1e6:,.3f}"


def _and(lengths: list[int]) -> str:
    return ", ".join(map(str, lengths[:-1])) + f" and {lengths[-1]}"
