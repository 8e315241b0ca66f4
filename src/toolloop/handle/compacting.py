"""What both drivers do about compaction: between turns, as the configuration wants it, and by hand."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve

from toolloop.core import events as ev
from toolloop.core import limits
from toolloop.core.errors import Conflict, IllegalCommand, InvalidHistory, OutsideError
from toolloop.core.jsontext import decode
from toolloop.core.machine import step
from toolloop.core.replies import read_reply
from toolloop.core.splicing import splices_between
from toolloop.core.states import Ledger, Ready, Requesting, TooDeep
from toolloop.handle.beginning import all_params
from toolloop.handle.binding import hangs_on_thinking
from toolloop.handle.compactor import Step, Tried, Wanted
from toolloop.handle.decisions import refuse_invalid
from toolloop.handle.editing import outgoing
from toolloop.handle.failing import told
from toolloop.handle.kits import Kit, driven_at
from toolloop.handle.opening import Opening
from toolloop.handle.params import Secrets, without_answers
from toolloop.handle.recording import Path
from toolloop.handle.tooling import Flight
from toolloop.handle.watching import Compacted
from toolloop.handle.writers import refuse_misfits, writer_of
from toolloop.history.compaction import Edit, Strategy
from toolloop.providers import OPTION_NAMES
from toolloop.providers.protocol import Request

_OWN = (OPTION_NAMES | {"mcp_servers", "metadata"}) - {"betas"}  # what only the loop's own provider gets


class Compacting(Opening):
    """Compaction, the pure halves."""

    # --- between turns ---

    def _compact_first(self, kit: Kit, loop: Ready, path: Path) -> Flight | Ready | None:
        """Do what is to be done before a request: the loop after it, or the request for a summary that it needs.

        None: somebody else was first to do something with the loop, and it is to be looked at anew.
        """
        while kit.compactor and not hangs_on_thinking(loop):
            found = kit.compactor.next_step(loop.ledger, loop.tail, kit.whole(loop.ledger.setup))
            if found is None:
                return loop
            if isinstance(found, Tried):
                event = self._unchanged(found, found.problem)
            elif isinstance(found, Wanted):
                try:
                    return self._summary_flight(kit, loop.ledger, path, found)
                except InvalidHistory as error:
                    event = self._unchanged(found, str(error))
            else:
                event = self._compacted(list(loop.ledger.messages), found, found.edit)
            self._record(evolve(event, path=path))
            after = driven_at(self._state, path)
            if not isinstance(after, Ready) or after is loop:
                return None
            loop = after
        return loop

    def _compacted(self, old: Sequence[str], step: Step | Wanted, edit: Edit) -> ev.Compacted:
        """The event of a compaction. `old`: the history that it was made of."""
        splices = splices_between(old, edit.texts)
        after = max(0, step.before - edit.before + edit.after)
        return ev.Compacted(step.label, splices, step.before, after, at=self._recorder.now())

    def _unchanged(self, step: Step | Wanted | Tried, problem: str | None = None) -> ev.Compacted:
        """The event of a compaction that came to nothing."""
        now = self._recorder.now()
        return ev.Compacted(step.label, before=step.before, after=step.before, problem=problem, at=now)

    # --- summaries ---

    def _summary_flight(self, kit: Kit, ledger: Ledger, path: Path, wanted: Wanted) -> Flight:
        """The request for a summary.

        Raises:
            InvalidHistory: the API would refuse it.

        """
        provider = writer_of(wanted.strategy, wanted.summary, is_async=self._is_async)
        messages = wanted.summary.request
        changes, own = wanted.strategy.given
        stored = before = decode(ledger.setup.params)
        secrets = kit.requests.secrets
        if provider is not None:  # to another one goes nothing that is meant for the loop's own
            stored = {name: value for name, value in stored.items() if name not in _OWN}
            if (tools := stored.get("tools")) and "mcp_servers" not in changes:  # what they bring is of those servers
                stored["tools"] = [tool for tool in tools if tool.get("type") != "mcp_toolset"]
            secrets = Secrets()
        params = {**stored, **changes}
        params = {name: value for name, value in params.items() if value is not None or name not in changes}
        refuse_invalid(messages, all_params(params, kit.tools), asked=f"the request for a summary by {wanted.label}")
        params.pop("container", None)
        # Behind other words no thinking is what it was.
        is_alike = all(params.get(name) == before.get(name) for name in ("system", "tools", "mcp_servers"))
        unbound = ledger.unbound if is_alike else ((0, len(messages)),)
        request = kit.requests.alone(without_answers(params), messages, unbound, secrets.joined(own))
        return Flight(path, request, provider=provider, wanted=wanted)

    def _summed_up(self, ledger: Ledger, wanted: Wanted, came: Any, took: float) -> ev.Compacted:
        """The event of a summary that was asked for. Whatever went wrong, the history is as it was.

        Args:
            ledger: of the loop.
            wanted: the summary.
            came: the reply of a provider, or the text of a function, or the exception that it raised.
            took: seconds.

        """
        if isinstance(came, Exception):
            return self._unchanged(wanted, told(came))
        entry = None
        try:
            if isinstance(came, Mapping):
                text, request_id = getattr(came, "text", None), getattr(came, "request_id", None)
                read = read_reply(came, text=text, request_id=request_id)
                entry = evolve(read.entry(ledger.iterations + 1, took), kind="summary")
                edit = wanted.summary.finish(came)
            else:
                edit = wanted.summary.finish_text(came)
        except OutsideError as error:  # no reply, or no summary
            return evolve(self._unchanged(wanted, told(error)), summary=entry)
        if tuple(ledger.messages[: len(wanted.old)]) != wanted.old:
            return evolve(self._unchanged(wanted, "the history changed meanwhile"), summary=entry)
        # What was said meanwhile stands after it, and stays.
        return evolve(self._compacted(wanted.old, wanted, edit), summary=entry)

    # --- by hand ---

    def _begin_by_hand(self, strategy: Strategy) -> Compacted | Flight:
        """Compact the history now; or, where that needs a summary, the request for it.

        What the caller has edited is taken over first.

        Raises:
            IllegalCommand: the caller has not the word.
            InvalidHistory: the API would refuse the edited history, or the request for the summary.

        """
        asked = f"{strategy.name}(handle)"
        refuse_misfits((strategy,), is_async=self._is_async)
        with self._recorder.lock:
            if isinstance(self._state, TooDeep | Requesting):
                raise IllegalCommand(
                    f"{asked}: the caller has not the word; wait until next_turn() returns",
                    state=type(self._state).__name__,
                    asked=asked,
                    allowed=(),
                )
            self._say(lambda: self._adopt(asked))
            kit, ledger = self._kits.root, self._as_woken(self._state).ledger
            compactor, tail = kit.compactor, getattr(self._state, "tail", ())
            tokens = compactor.meter.request(ledger, tail, kit.whole(ledger.setup))
            if hangs_on_thinking(self._state):
                why = "the model pauses, and what it said so far needs its thinking beside it: continue the turn first"
                return Compacted(ledger.iterations, strategy.name, tokens, tokens, why)
            found = compactor.plan(strategy.name, strategy, ledger, tokens) if strategy.is_due(tokens) else None
            if found is None:
                return Compacted(ledger.iterations, strategy.name, tokens, tokens)
            if isinstance(found, Step):
                return self._told(self._compacted(list(ledger.messages), found, found.edit))
            if spent := limits.over_budget(ledger, limits.BEFORE_REQUESTS_BELOW):
                why = f"{spent.what} of the budget are spent: {spent.spent} of {spent.limit}"
                return Compacted(ledger.iterations, strategy.name, tokens, tokens, why)
            return self._summary_flight(kit, ledger, (), found)

    def _end_by_hand(self, flight: Flight, came: Any) -> Compacted:
        """The request for a summary is over: what came of it."""
        took = round(time.monotonic() - flight.begun, 6)
        with self._recorder.lock:
            event = self._summed_up(self._state.ledger, flight.wanted, came, took)
            try:
                return self._told(event)
            except (Conflict, IllegalCommand):  # what it used is counted all the same
                unchanged = self._unchanged(flight.wanted, "the loop went on elsewhere meanwhile")
                return self._told(evolve(unchanged, summary=event.summary))

    def _counter(self) -> Any:
        """Who counts tokens."""
        if not hasattr(self._provider, "count_tokens"):
            raise TypeError(
                f"count_tokens(): a {type(self._provider).__name__} counts no tokens; toolloop.history.estimate_tokens "
                "gives an estimate"
            )
        return self._provider

    def _to_count(self) -> Request:
        """The request that would go out next."""
        with self._recorder.lock:
            edit = self._edit()
            state = self._as_woken(self._state if edit is None else step(self._state, edit))
            ledger = state.ledger
            messages = outgoing(state, list(ledger.messages))
            return self._kits.root.requests.alone(decode(ledger.setup.params), messages, ledger.unbound)

    def _told(self, event: ev.Compacted) -> Compacted:
        """Record a compaction by hand, and what to tell of it."""
        self._say(lambda: self._record(evolve(event, by_hand=True)))
        return Compacted(self._state.ledger.iterations, event.strategy, event.before, event.after, event.problem)
