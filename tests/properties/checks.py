"""What must hold of a loop at every moment, whatever was done to it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tests.properties.bench import EVERY_TOOL
from tests.properties.settings import config_of
from tests.properties.shortening import is_for_summary
from tests.properties.wire import check_results, check_verbatim, exact
from tests.properties.world import World
from toolloop import ToolLoopHandle
from toolloop.core.states import Deciding, Judging, Running, State
from toolloop.core.values import Outcome, Status, Why
from toolloop.stores.codec import dump

FIRST = exact(b'{"role": "user", "content": "Begin."}')


class Checked(World):
    """A loop that can be checked."""

    checked = 0  # how many of the requests were

    def restored(self, client: Any, snapshot: Any = None, **more: Any) -> ToolLoopHandle:
        """A handle from a snapshot that went through JSON; of now, unless given."""
        text = json.dumps(snapshot or self.handle.snapshot())
        setup = self.handle.state.ledger.setup
        more = {
            "config": config_of(setup, self.config),
            "tools": [EVERY_TOOL[facts.name] for facts in setup.tools],
            "context": self.context,
            "clock": self.clock,
            **more,
        }
        return ToolLoopHandle.restore(json.loads(text), client, **more)

    def check(self) -> None:
        """Whatever happened, this is so."""
        assert not self.bench.wrong, self.bench.wrong[0]
        truth = self.journal.compare(self.handle)
        self.note_compactions()
        self._check_requests()
        self._check_usage(truth)
        self._check_decisions(truth)
        self._check_end()
        self._check_sleep()
        if self.injected and not self.is_shortened:
            said = json.dumps(dump(truth))
            assert [words for words in self.injected if words not in said] == []

    @property
    def is_shortened(self) -> bool:
        """Whether something was taken out of the history, by the caller or by a compaction."""
        return self.edited or bool(self.compacted - {"MaskResults"})

    def _check_requests(self) -> None:
        refused = [request.refusal for request in self.api.refused]
        assert not refused, refused[0]
        for raw, before in self.sent[self.checked :]:
            body = exact(raw)
            check_results(body)
            asked = is_for_summary(body)
            cut = self.is_shortened or asked  # a summary is of the first messages
            check_verbatim(body, self.received[:before], edited=cut, masked="MaskResults" in self.compacted)
            assert self.edited or body["messages"][0] == FIRST, "the first words of the user are gone"
        self.checked = len(self.sent)

    def _check_usage(self, truth: State) -> None:
        ledger = truth.ledger
        kinds = Counter(entry.kind for entry in ledger.usage_log)
        assert ledger.iterations == len(self.received) == kinds["reply"]
        assert kinds["summary"] == len(self.summaries)
        for name in ("input_tokens", "output_tokens"):
            spent = sum(reply["usage"].get(name, 0) for reply in [*self.received, *self.summaries])
            assert getattr(ledger.total_usage, name) == spent

    def _check_decisions(self, truth: State) -> None:
        """What was decided stays so, and what expired is over for good."""
        if not isinstance(truth, Judging | Deciding | Running):
            return
        for call in truth.round.calls:
            if call.result is not None and call.result.outcome is Outcome.EXPIRED:
                assert call.expires_at is not None
                assert call.expires_at <= self.clock.now
                self.bench.closed.add(call.id)
            assert call.id not in self.bench.closed or call.status is Status.SETTLED, f"{call.id} is open again"
            asks = call.status is Status.WAITING and call.why is Why.APPROVAL
            assert call.id not in self.bench.approved or not asks, f"{call.id} asks again"

    def _check_end(self) -> None:
        handle = self.handle
        if handle.is_finished and not self.is_behind:
            result = handle.next_turn()
            assert handle.next_turn() is result

    def _check_sleep(self) -> None:
        """A copy from the snapshot is the same loop, the bytes of its next request included."""
        handle = self.handle
        copy = self.restored(self.mirror_client)
        assert copy.state == handle.state
        assert copy.snapshot() == handle.snapshot()
        assert (copy.messages, copy.pending, copy.view()) == (handle.messages, handle.pending, handle.view())
