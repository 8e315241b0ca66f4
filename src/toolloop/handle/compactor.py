"""When a loop compacts its history between turns, and what comes of it: decided here, performed by the driver.

Nothing here remembers what it did: the ledger does. So a loop that wakes up elsewhere compacts at the same moments, and
sends the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from toolloop.core.freezing import frozen
from toolloop.core.states import Ledger
from toolloop.handle.failing import told
from toolloop.handle.measuring import Meter
from toolloop.history.compaction import Edit, Strategy

if TYPE_CHECKING:
    from toolloop.handle.summarizing import Summarize
    from toolloop.history.summarizing import Summary

# A strategy looks again once a tenth has been added: each time costs a look at the whole history.
_PART = 10


@frozen
class Step:
    """A compaction that is to be done.

    Attributes:
        label: by which the ledger knows the strategy.
        before: about how many tokens the next request has without it.
        edit: the new history.

    """

    label: str
    before: int
    edit: Edit


@frozen
class Wanted:
    """A compaction that needs a summary first.

    Attributes:
        label, before: as of a `Step`.
        old: the history that it is of.
        summary: the one that is wanted.
        strategy: which wants it.

    """

    label: str
    before: int
    old: tuple[str, ...]
    summary: Summary
    strategy: Summarize


@frozen
class Tried:
    """A compaction was due, and comes to nothing. It is not looked at soon again, for that takes a long look.

    Attributes:
        label, before: as of a `Step`.
        problem: what went wrong, if something did.

    """

    label: str
    before: int
    problem: str | None = None


class Compactor:
    """What the configuration of a loop wants of compaction."""

    def __init__(self, strategies: Sequence[Strategy]) -> None:
        """`strategies`: in the order in which they are tried."""
        self.meter = Meter()
        self._strategies = tuple(_labelled(strategies))

    def __bool__(self) -> bool:
        return bool(self._strategies)

    def next_step(self, ledger: Ledger, tail: Sequence[str], params: str) -> Step | Wanted | Tried | None:
        """The next compaction before a request, if there is one. `params`: with all tools among them, as JSON."""
        before = self.meter.request(ledger, tail, params)
        for label, strategy in self._strategies:
            if _is_due(strategy, dict(ledger.compacted).get(label), before):
                return self._looked(label, strategy, ledger, before)
        return None

    def _looked(self, label: str, strategy: Strategy, ledger: Ledger, before: int) -> Step | Wanted | Tried:
        try:
            step = self.plan(label, strategy, ledger, before)
        except Exception as error:  # noqa: BLE001 - the caller's own `pinned` may raise anything
            return Tried(label, before, told(error))
        if step is None or (strategy.at_tokens is None and not _pays(step, ledger.messages)):
            return Tried(label, before)
        return step

    def plan(self, label: str, strategy: Strategy, ledger: Ledger, before: int) -> Step | Wanted | None:
        """What a strategy would do with the closed history; None if nothing, or nothing that makes it shorter."""
        from toolloop.handle.summarizing import Summarize  # noqa: PLC0415 - most loops never summarize

        outlines = self.meter.outlines(ledger.messages)
        if isinstance(strategy, Summarize):
            summary = strategy.plan(outlines)
            return None if summary is None else Wanted(label, before, tuple(ledger.messages), summary, strategy)
        edit = strategy.plan(outlines)
        return None if edit is None or edit.after >= edit.before else Step(label, before, edit)


def _is_due(strategy: Strategy, left: int | None, tokens: int) -> bool:
    """Whether a strategy is to look at a history of so many tokens. `left`: how many there were after its last look."""
    threshold = strategy.at_tokens or 0
    return tokens >= threshold and (left is None or tokens > left + max(threshold, left) // _PART)


def _pays(step: Step | Wanted, old: Sequence[str]) -> bool:
    """Whether a compaction frees at least as much as the prompt cache has to take anew after it."""
    if isinstance(step, Wanted):
        return step.summary.frees >= step.summary.stays
    new = step.edit.outlines
    pairs = zip(old, new, strict=False)
    same = next((at for at, (text, outline) in enumerate(pairs) if text != outline.text), len(new))
    return step.edit.before - step.edit.after >= sum(outline.tokens for outline in new[same:])


def _labelled(strategies: Sequence[Strategy]) -> Iterator[tuple[str, Strategy]]:
    seen: dict[str, int] = {}
    for strategy in strategies:
        name = type(strategy).__name__
        seen[name] = seen.get(name, 0) + 1
        yield (name if seen[name] == 1 else f"{name}#{seen[name]}"), strategy
