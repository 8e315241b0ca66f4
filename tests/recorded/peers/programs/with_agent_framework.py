"""agent-framework: approvals in its sessions. Run it with `agent-framework-core`, `anyio` and `trio`."""

import json
import sys
from functools import partial
from importlib.metadata import version

import anyio
from agent_framework import Agent, AgentSession, BaseChatClient, ChatResponse, Content, Message, tool
from agent_framework._tools import FunctionInvocationLayer
from common import STATE, attempt, paid, play, processes

CALLS = 1


class Model(FunctionInvocationLayer, BaseChatClient):
    async def _inner_get_response(self, *, messages, stream, options, **kwargs):
        seen = [content for message in messages for content in message.contents]
        self.results = [content.result for content in seen if content.type == "function_result"]
        again = any(content.type == "function_call" for content in seen)
        calls = [Content.from_function_call(f"c{i}", "pay", arguments={"euros": i}) for i in range(1, CALLS + 1)]
        return ChatResponse(messages=[Message("assistant", ["done"] if again else calls)])


@tool(approval_mode="always_require")
async def pay(euros: int) -> str:
    """Pay."""
    return paid(euros)


model = Model()
agent = Agent(model, tools=[pay])


def begin(calls):
    global CALLS
    CALLS = calls
    session = agent.create_session()
    result = anyio.run(partial(agent.run, "go", session=session))
    requests = [request.to_dict() for request in result.user_input_requests]
    STATE.write_text(json.dumps({"session": session.to_dict(), "requests": requests}))


def resume(*rounds, prompt=None, arguments=None, backend="asyncio", changed=False):
    text = STATE.read_text().replace('"euros": 1', '"euros": 9') if changed else STATE.read_text()
    state, seen = json.loads(text), []
    session = AgentSession.from_dict(state["session"])
    for decisions in rounds:
        answers = []
        for decision, each in zip(decisions, state["requests"], strict=True):
            each["function_call"].update({"arguments": arguments} if arguments else {})
            if decision is not None:
                answers.append(Content.from_dict(each).to_function_approval_response(decision))
        asked = partial(agent.run, prompt or Message("user", answers), session=session)
        result = anyio.run(asked, backend=backend)
        seen.append((result.text, len(result.user_input_requests), model.results if result.text else "not asked"))
    return seen


if "resume" in sys.argv:
    sys.exit(0 if resume([True])[0][0] == "done" else 1)
print("agent-framework", version("agent-framework-core"))
play(
    begin,
    (1, "two processes", lambda: processes("slow", "slow")),
    (1, "killed, then resumed", lambda: (processes("die"), processes("again"))),
    (1, "approved twice, in one session", lambda: resume([True], [True])),
    (1, "denied", lambda: resume([False])),
    (2, "one of two", lambda: resume([True, None])),
    (2, "one of two, then the other", lambda: resume([True, None], [None, True])),
    (1, "malformed, then right", lambda: resume(["aprove"], [True])),
    (1, "edited in the response", lambda: resume([True], arguments={"euros": 9})),
    (1, "edited in the saved state", lambda: resume([True], changed=True)),
    (1, "a new message while a call waits", lambda: resume([None], prompt="also")),
    (1, "trio", lambda: attempt(lambda: resume([True], backend="trio"))),
)
