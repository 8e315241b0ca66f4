"""LangChain: its human-in-the-loop middleware. Run it with `langchain`, `langgraph-checkpoint-sqlite` and `trio`."""

import sys
from importlib.metadata import version

import trio
from common import FOLDER, attempt, paid, play, processes, show
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

CALLS, MODE = 1, "batched" if "batched" in sys.argv else "per_call"
THREAD = {"configurable": {"thread_id": "t"}}
YES, WRONG = {"type": "approve"}, {"type": "aprove"}
EDIT = {"type": "edit", "edited_action": {"name": "pay", "args": {"euros": 9}}}


class Model(GenericFakeChatModel):
    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, *args, **kwargs):
        calls = [{"name": "pay", "args": {"euros": i}, "id": f"c{i}"} for i in range(1, CALLS + 1)]
        again = any(isinstance(message, AIMessage) for message in messages)
        message = AIMessage("done") if again else AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool
def pay(euros: int) -> str:
    """Pay."""
    return paid(euros)


def agent(saver):
    asked = HumanInTheLoopMiddleware({"pay": True}, interrupt_mode=MODE)
    return create_agent(Model(messages=iter([])), tools=[pay], middleware=[asked], checkpointer=saver)


def resume(*decisions, message=None):
    with SqliteSaver.from_conn_string(str(FOLDER / "state.db")) as saver:
        waiting = agent(saver).get_state(THREAD).interrupts
        if MODE == "batched":
            value = Command(resume={"decisions": list(decisions)})
        else:
            value = Command(resume={i.id: d for i, d in zip(waiting, decisions, strict=False) if d})
        result = agent(saver).invoke({"messages": [("user", message)]} if message else value, THREAD)
        return [(m.type, m.text[:60]) for m in result["messages"]], len(result.get("__interrupt__", []))


def begin(calls):
    global CALLS
    CALLS = calls
    (FOLDER / "state.db").unlink(missing_ok=True)
    with SqliteSaver.from_conn_string(str(FOLDER / "state.db")) as saver:
        agent(saver).invoke({"messages": [("user", "go")]}, THREAD)


if "resume" in sys.argv:
    sys.exit(0 if "done" in str(resume(YES)) else 1)
print("LangChain", version("langchain"), "LangGraph", version("langgraph"), MODE)
play(
    begin,
    (1, "two processes", lambda: processes("slow", "slow")),
    (1, "killed, then resumed", lambda: (processes("die"), processes("again"))),
    (1, "approved twice", lambda: (resume(YES), resume(YES))),
    (1, "denied", lambda: resume({"type": "reject"})),
    (2, "one of two", lambda: attempt(lambda: resume(YES))),
    (1, "malformed, then right", lambda: [attempt(lambda d=d: resume(d)) for d in (WRONG, YES)]),
    (1, "edited", lambda: resume(EDIT)),
    (1, "a new message while a call waits", lambda: resume(message="also")),
)
show("trio", attempt(lambda: trio.run(agent(InMemorySaver()).ainvoke, {"messages": [("user", "go")]}, THREAD)))
