"""The bare machine inside a Temporal workflow: its history is the journal, and no store is needed."""

import json
from datetime import timedelta
from typing import Any, Literal

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from toolloop import machine as m
from toolloop.errors import IllegalCommand

ONCE = RetryPolicy(maximum_attempts=1)
FACTS = (m.ToolFacts("pay", effect="once", approval="always", digest="1"),)
PAY = {
    "name": "pay",
    "description": "Pay money back.",
    "input_schema": {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]},
}


@activity.defn
def ask_model(params: str, messages: list[str]) -> dict[str, Any]:
    """Send a request; Temporal retries it."""
    from anthropic import Anthropic  # noqa: PLC0415 - a workflow must not import a client

    from toolloop.providers import AnthropicProvider, Request  # noqa: PLC0415

    return dict(AnthropicProvider(Anthropic(max_retries=0)).send(Request(params, messages)))


@activity.defn
def pay(order: int) -> str:
    """Pay money back, once."""
    return f"order {order} is paid back"


@workflow.defn
class Refunds:
    """A loop. Its state is computed from the history of the workflow, also after a crash."""

    @workflow.init
    def __init__(self, params: dict[str, Any], question: str) -> None:
        setup = m.Setup(loop_id=workflow.info().workflow_id, params=json.dumps({**params, "tools": [PAY]}), tools=FACTS)
        self.state = m.begin(m.Opened(setup, (json.dumps({"role": "user", "content": question}),)))

    def record(self, event: m.Event) -> None:
        """Take a step, or raise and change nothing."""
        self.state = m.step(self.state, event)

    @workflow.query
    def pending(self) -> list[dict[str, str]]:
        """Return the calls that wait for a decision."""
        return [{"id": call.id, "name": call.name, "input": call.effective_input} for _, call in m.waiting(self.state)]

    @workflow.signal
    def decide(self, call_id: str, decision: Literal["approve", "deny", "rerun"], by: str) -> None:
        """Decide a call: `approve`, or `deny`; of an uncertain one, `rerun`."""
        try:
            reason = "no" if decision == "deny" else None
            record = m.DecisionRecord(decision, reason=reason, by=by, via="x-temporal")
            self.record(m.Decided(((call_id, record),)))
        except IllegalCommand as error:  # such as a second click
            workflow.logger.warning("not decided: %s", error)

    @workflow.run
    async def run(self, params: dict[str, Any], question: str) -> str:  # noqa: ARG002 - `__init__` has them
        """Drive the loop to its end. Return the last text of the model."""
        while not isinstance(phase := self.state.root.phase, m.Finished):
            if effects := m.outstanding(self.state):
                await self.perform(effects[0])  # one thing; then look again
            elif isinstance(phase, m.Failed):
                raise ApplicationError(phase.failure.message)
            else:
                await workflow.wait_condition(lambda: not m.waiting(self.state))
                self.record(m.Continued())
        reply = json.loads(self.state.root.response or "{}")
        return "".join(block["text"] for block in reply.get("content", ()) if block["type"] == "text")

    async def perform(self, effect: m.Effect) -> None:
        """Do what the machine asks for, and record it."""
        match effect:
            case m.SendRequest():
                await self.send()
            case m.Judge(calls=calls):
                self.record(m.Judged(tuple((call_id, self.policy(call_id)) for call_id in calls)))
            case m.RunCall(call_id=call_id):
                await self.run_call(call_id)
            case m.EndTurn():
                self.record(m.TurnEnded())

    def call(self, call_id: str) -> m.Call:
        """Return a call of the open round."""
        calls = self.state.root.calls
        return next(call for call in calls if call.id == call_id)

    def policy(self, call_id: str) -> m.PolicyResult:
        """A person decides each call of the tool that there is."""
        if self.call(call_id).name == "pay":
            return m.Wait(m.Why.APPROVAL)
        return m.Reject(m.Outcome.UNKNOWN_TOOL, "The only tool is pay.")

    async def send(self) -> None:
        """Let an activity ask the model."""
        loop = self.state.root
        self.record(m.Requested())
        reply = await workflow.execute_activity(
            ask_model,
            args=[loop.setup.params, [*loop.messages, *loop.unjoined]],
            start_to_close_timeout=timedelta(minutes=10),
        )
        self.record(m.Replied(m.read_reply(reply)))

    async def run_call(self, call_id: str) -> None:
        """Let an activity run the tool, once."""
        given = json.loads(self.call(call_id).effective_input)
        self.record(m.Started(call_id))
        try:
            result = await workflow.execute_activity(
                pay, given["order"], start_to_close_timeout=timedelta(minutes=1), retry_policy=ONCE
            )
        except ActivityError:  # how it ended is unknown: the machine asks a person
            self.record(m.Ended(call_id, None))
        else:
            self.record(m.Ended(call_id, m.Result(json.dumps(result))))
