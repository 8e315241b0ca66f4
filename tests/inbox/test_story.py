"""What the page tells of a loop, from its journal: who said what, why a call waits, and how it ended."""

from __future__ import annotations

from pathlib import Path

from tests.inbox.page.visitor import Visitor
from tests.inbox.support import PARAMS, desk
from toolloop import Approve, Deny, LoopConfig, Texts, ToolLoopHandle, sub_loop, tool
from toolloop.testing import ScriptedProvider, call, reply

PAY = call("pay", {"to": "ana", "euros": 5}, id="c1")


def test_a_call_of_an_agent_says_what_the_agent_was_asked(tmp_path: Path) -> None:
    """The user's request of the outermost loop, the prompt of the agent, and its last text; the trail has its steps."""

    @tool(needs_approval=True)
    def pay(to: str, euros: int) -> str:
        """Pay."""
        return f"paid {euros} to {to}"

    clerk = sub_loop("clerk", "Pays.", params={"model": "claude-opus-5-5", "max_tokens": 9}, tools=[pay])
    found = desk("memory", tmp_path)
    script = [
        reply("I ask the clerk.", calls=[call("clerk", {"prompt": "Pay ana"}, id="p")]),
        reply("I pay her.", calls=[PAY]),
        reply("Paid."),
        reply("All is paid."),
    ]
    provider = ScriptedProvider(script)
    with ToolLoopHandle.open(found.store, "loop", provider, tools=[clerk], params=PARAMS, clock=found.clock) as handle:
        handle.run()
    visitor = Visitor(found)
    visitor.open("/", call="loop..p..c1")
    assert "User Pay the bills Agent Pay ana Model I pay her." in visitor.bare
    assert "in loop \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} clerk" in visitor.bare
    visitor.follow(visitor.send("approve"))
    with ToolLoopHandle.open(found.store, "loop", provider, tools=[clerk], clock=found.clock) as handle:
        handle.run()
    visitor.open("/loop", id="loop")
    order = ["Pay the bills", "I ask the clerk.", "clerk", "Pay ana", "I pay her.", "approved by ana", "Paid."]
    places = [visitor.bare.index(each) for each in order]
    assert places == sorted(places)


def test_a_text_that_was_said_later_is_not_a_reason(tmp_path: Path) -> None:
    """Also where the clock did not move between the two."""
    found = desk("memory", tmp_path, script=(reply("I pay.", calls=[PAY]), reply("All is paid.")))
    found.drive()
    found.inbox.decide("loop", {"c1": Approve(by="bo")})
    found.drive()
    visitor = Visitor(found)
    visitor.open("/", call="loop..c1")
    assert "Model I pay." in visitor.bare
    assert "This is what bo approved" in visitor.bare


def test_each_end_of_a_call_is_in_the_story(tmp_path: Path) -> None:
    """Denied, expired, and stopped before it was decided."""
    found = desk("memory", tmp_path, config={"decision_timeout": 60})
    for name in ("denied", "expired", "stopped"):
        found.drive(name)
    found.inbox.decide("denied", {"c1": Deny("too much", by="bo"), "c2": Deny("no", by="bo")})
    found.inbox.stop("stopped", "enough", by="eve")
    found.now += 61
    found.drive("expired")
    visitor = Visitor(found)
    for name, words in (("denied", "denied by bo"), ("expired", "expired"), ("stopped", "not decided")):
        visitor.open("/", call=f"{name}..c1")
        assert "This did not run" in visitor.bare
        assert words in visitor.bare
        assert not visitor.has("approve")
    visitor.open("/loop", id="stopped")
    assert "Stopped" in visitor.bare
    assert "by eve" in visitor.bare
    assert "“enough”" in visitor.bare


def test_what_a_tool_returned_after_the_stop_is_on_the_page(tmp_path: Path) -> None:
    """With when; a call that never started says that it did not run."""
    found = desk("memory", tmp_path)

    @tool
    def refund(order: int) -> str:
        """Refund an order, while a person stops the loop."""
        found.inbox.stop("loop", "wrong customer", by="eve")
        return f"refunded {order}"

    calls = [call("refund", {"order": order}, id=f"r{order}") for order in (902, 903)]
    script, config = ScriptedProvider([reply(calls=calls)]), LoopConfig(max_parallel_tools=1)
    given = {"params": PARAMS, "clock": found.clock, "config": config}
    with ToolLoopHandle.open(found.store, "loop", script, tools=[refund], **given) as handle:  # type: ignore[arg-type]  # what it takes
        handle.run()
    visitor = Visitor(found)
    visitor.open("/loop", id="loop")
    assert "it ended after the stop" in visitor.bare
    assert "refunded 902" in visitor.bare
    assert "running" not in visitor.bare
    assert Texts().not_run in visitor.bare
