"""What the tests of rules share: a loop in which a person may pay, and who has to approve it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from attrs import define, field

from toolloop import LoopConfig, Person, ToolCall, ToolLoopHandle, Yielded, tool
from toolloop.errors import IllegalCommand
from toolloop.rules import Rules
from toolloop.testing import ScriptedProvider, call, reply

PARAMS = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Pay"}]}
FAY, FRED, SUE = Person("fay", "finance"), Person("fred", "finance"), Person("sue", "support")
PAY = {"to": "ana", "amount": 600}


@define
class Payment:
    """A loop whose model wants to pay, under these rules."""

    rules: Any
    given: Mapping[str, Any] = field(factory=lambda: PAY)
    needs_approval: Any = False
    ran: list[Any] = field(factory=list)
    handle: ToolLoopHandle = field(init=False)

    def __attrs_post_init__(self) -> None:
        @tool(needs_approval=self.needs_approval)
        def pay(to: str, amount: float, note: str = "refund") -> str:
            """Pay."""
            self.ran.append((to, amount, note))
            return "paid"

        provider = ScriptedProvider([reply(calls=[call("pay", dict(self.given), id="c1")]), reply("Done.")])
        policy = Rules(self.rules) if isinstance(self.rules, list) else self.rules
        self.handle = ToolLoopHandle(provider, params=PARAMS, tools=[pay], config=LoopConfig(on_tool_call=policy))

    def drive(self, *persons: Person) -> bool:
        """Drive it with the approvals of these persons, as far as they count. Return whether the call ran."""
        turn = self.handle.next_turn()
        assert isinstance(turn, Yielded)
        for person in persons if turn.pending else ():
            if self.approve(person):
                break
        return bool(self.ran)

    def approve(self, person: Person) -> bool:
        """Return whether the call then ran."""
        turn = self.handle.pending_turn
        assert turn is not None
        with suppress(IllegalCommand):  # an approval that counts for no demand is refused
            if not turn.approve(turn.pending[0], by=person).missing:
                turn.continue_loop()
                self.handle.next_turn()
        return bool(self.ran)

    @property
    def call(self) -> ToolCall:
        """The call, before its round is closed."""
        (found,) = self.handle.pending
        return found
