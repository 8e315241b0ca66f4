"""What must hold in every loop of a tree, whatever happens: the states are held against what is known from outside."""

from __future__ import annotations

from tests.properties.tree_truth import Books, Fact, Key, Truth, everywhere, key_of, results_in, said, the_round
from tests.properties.wire import check_results
from toolloop.core.jsontext import decode
from toolloop.core.states import (
    Deciding,
    Executed,
    Failed,
    Finished,
    Judging,
    Paused,
    Ready,
    Running,
    State,
)
from toolloop.core.terminations import BudgetExceeded, Timeout
from toolloop.core.tree import is_over, loop_at, round_of
from toolloop.core.usage import Usage
from toolloop.core.values import Status, Why
from toolloop.history import check as problems_of


class CheckedTruth(Truth):
    """What is known from outside, and what follows from it."""

    def check(self, state: State) -> None:
        """Whatever happened, this is so in each loop."""
        for path, loop in everywhere(state):
            key = key_of(loop)
            assert tuple(name for _, name in key) == path
            self._check_books(loop, self.books[key])
            self._check_calls(key, loop)
            self._check_history(key, loop)
            assert not (path and isinstance(loop, Executed | Paused)), f"{path} waits for a command"
        self._check_end(state)

    def _check_books(self, loop: State, books: Books) -> None:
        ledger = loop.ledger
        assert ledger.total_usage == books.usage
        assert len(ledger.usage_log) == books.entries
        assert sum((entry.usage for entry in ledger.usage_log), Usage()) == books.usage
        assert ledger.iterations == books.answered
        assert [entry.iteration for entry in ledger.usage_log if not entry.path] == [*range(1, books.answered + 1)]
        assert list(ledger.ran) == books.ran
        assert abs(ledger.active - books.active) < 1e-6
        assert {grant.id: grant.uses for grant in ledger.grants}.keys() == books.grants.keys()

    def _check_calls(self, key: Key, loop: State) -> None:
        round_ = round_of(loop)
        for call in () if round_ is None else round_.calls:
            fact = self.calls[(*key, (the_round(loop).iteration, call.id))]
            if call.result is not None and fact.result is None:
                assert fact.barred, f"{call.id} has a result, and nobody knows why"
                fact.result = call.result.content
            assert fact.result == (None if call.result is None else call.result.content)
            assert (call.status is Status.SETTLED) == (call.result is not None)
            assert call.result is not None or not fact.barred or isinstance(loop, Judging | Finished)
            assert fact.running == (call.status is Status.RUNNING)
            assert fact.attempts == call.attempts
            asks = call.status is Status.WAITING and call.why is Why.APPROVAL
            assert not (fact.approved and asks), f"{call.id} was approved, and asks again"

    def _check_history(self, key: Key, loop: State) -> None:
        books, texts = self.books[key], list(loop.ledger.messages)
        if texts == books.history:
            return
        books.history = texts
        messages = [decode(text) for text in texts]
        check_results({"messages": messages})
        assert not [each for each in problems_of(messages) if each.level == "error"]
        if isinstance(loop, Ready):
            sent = [*messages, *map(decode, loop.tail)]
            assert not [each for each in problems_of(sent) if each.level == "error"]
        self._check_results(key, loop)

    def _check_results(self, key: Key, loop: State) -> None:
        """The history answers every call that was asked, in order, with the one result that is known of it."""
        told = results_in(loop)
        asked = self.books[key].asked
        is_open = isinstance(loop, Judging | Deciding | Running | Failed) and round_of(loop) is not None
        closed = {number: ids for number, ids in asked.items() if not (is_open and number == the_round(loop).iteration)}
        assert list(told) == [call_id for ids in closed.values() for call_id in ids]
        for number, ids in closed.items():
            for call_id in ids:
                fact, words = self.calls[(*key, (number, call_id))], said(decode(told[call_id]))
                if fact.result is not None:
                    assert words == said(decode(fact.result)), f"another result of {call_id}"
                else:
                    assert isinstance(loop, Finished) or fact.barred, f"{call_id} is left open"
                    self._check_open(fact, words, loop)

    def _check_open(self, fact: Fact, words: str, loop: State) -> None:
        """What the history says of a call that had no result when its loop ended: whether it had started is true."""
        texts = loop.ledger.setup.texts
        if fact.attempts:
            assert words == texts.cancelled or "nobody saw it end" in words
        else:
            assert words == texts.not_run

    def _check_end(self, state: State) -> None:
        """Who ends by a limit has reached it, and a failure is that of a loop that is there."""
        match state:
            case Finished(termination=BudgetExceeded(what=what, limit=limit, spent=spent)):
                books = self.books[()]
                used = {"requests": books.entries, "tool_calls": len(books.ran)}
                assert spent == (used[what] if what in used else getattr(books.usage, what)) >= limit
            case Finished(termination=Timeout(limit=seconds)):
                assert self.books[()].active >= seconds
            case Failed(failure=failure, round=round_) if round_ is not None:
                failed = loop_at(state, failure.path)
                assert isinstance(failed, Failed)
                assert not is_over(failed)
