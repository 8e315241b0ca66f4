"""pydantic-ai: approvals of its deferred tools. Run it with `pydantic-ai-slim` and `trio`."""

import asyncio
import sys
from importlib.metadata import version

import trio
from common import STATE, attempt, paid, play, processes, show
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, InMemoryConversationStore
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

CALLS = 1


def answer(messages, _info):
    calls = [ToolCallPart("pay", {"euros": i}, f"c{i}") for i in range(1, CALLS + 1)]
    return ModelResponse(calls if len(messages) == 1 else [TextPart("done")])


agent = Agent(FunctionModel(answer), output_type=[str, DeferredToolRequests])


@agent.tool_plain(requires_approval=True)
async def pay(euros: int) -> str:
    return paid(euros)


def begin(calls=1):
    global CALLS
    CALLS = calls
    result = agent.run_sync("go")
    STATE.write_bytes(result.all_messages_json())


def resume(prompt=None, **approvals):
    results = DeferredToolResults(approvals=approvals) if approvals else None
    history = ModelMessagesTypeAdapter.validate_json(STATE.read_bytes())
    result = agent.run_sync(prompt, message_history=history, deferred_tool_results=results)
    parts = [part for message in result.all_messages() for part in message.parts if part.part_kind == "tool-return"]
    return result.output, [part.content for part in parts]


async def store_twice():
    store = InMemoryConversationStore()
    await store.save(await agent.run("go", conversation=Conversation(conversation_id="c")))
    loaded = [await store.load("c"), await store.load("c")]
    for each in loaded:
        approvals = DeferredToolResults(approvals={"c1": True})
        result = await agent.run(conversation=each, deferred_tool_results=approvals)
        try:
            await store.save(result)
        except ConversationConflict as error:
            show("twice with a store", type(error).__name__, "at save")


if "resume" in sys.argv:
    sys.exit(0 if resume(c1=True)[0] == "done" else 1)
print("pydantic-ai", version("pydantic-ai-slim"))
play(
    begin,
    (1, "two processes", lambda: processes("slow", "slow")),
    (1, "killed, then resumed", lambda: (processes("die"), processes("again"))),
    (1, "approved twice", lambda: (resume(c1=True), resume(c1=True))),
    (1, "denied", lambda: resume(c1=ToolDenied("no"))),
    (2, "one of two", lambda: attempt(lambda: resume(c1=True))),
    (1, "malformed, then right", lambda: (attempt(lambda: resume(c1="aprove")), resume(c1=True))),
    (1, "edited", lambda: resume(c1=ToolApproved(override_args={"euros": 9}))),
    (1, "a new message while a call waits", lambda: attempt(lambda: resume("also"))),
)
asyncio.run(store_twice())
show("trio", attempt(lambda: trio.run(agent.run, "go")))
