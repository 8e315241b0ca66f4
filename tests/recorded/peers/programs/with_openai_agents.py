"""openai-agents: approvals of its run state. Run it with `openai-agents` and `trio`."""

import asyncio
import sys
from importlib.metadata import version

import trio
from agents import Agent, Model, ModelResponse, RunConfig, Runner, RunState, Usage, function_tool
from common import STATE, attempt, paid, play, processes, show
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

CALLS = ROUNDS = 1


class Fake(Model):
    async def get_response(self, system_instructions, input, *args, **kwargs):
        ended = 0 if isinstance(input, str) else sum(item.get("type") == "function_call_output" for item in input)
        first = range(1, CALLS + 1) if not ended else []
        calls = [
            ResponseFunctionToolCall(arguments=f'{{"euros": {i}}}', call_id=f"c{i}", name="pay", type="function_call")
            for i in (first or range(ended + 1, ROUNDS + 1))
        ]
        text = ResponseOutputText(text="done", type="output_text", annotations=[])
        over = ResponseOutputMessage(id="m", role="assistant", status="completed", type="message", content=[text])
        return ModelResponse(calls or [over], Usage(), None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


@function_tool(needs_approval=True)
async def pay(euros: int) -> str:
    """Pay."""
    return paid(euros)


model = Fake()
agent = Agent(name="payer", tools=[pay])
config = RunConfig(model=model, tracing_disabled=True)


def begin(calls):
    global CALLS, ROUNDS
    CALLS, ROUNDS = (1, 2) if calls == "rounds" else (calls, 1)
    result = asyncio.run(Runner.run(agent, "go", run_config=config))
    STATE.write_text(result.to_state().to_string())


async def go_on(of, always, text):
    state = await RunState.from_string(agent, text)
    for each in state.get_interruptions()[:of]:
        state.approve(each, always_approve=always)
    result = await Runner.run(agent, state, run_config=config)
    return result.final_output, f"{len(result.interruptions)} wait"


def resume(of=1, always=False, changed=False):
    text = STATE.read_text()
    if changed:
        text = text.replace('{\\"euros\\": 1}', '{\\"euros\\": 9}')
    return attempt(lambda: asyncio.run(go_on(of, always, text)))


if "resume" in sys.argv:
    sys.exit(0 if "done" in resume() else 1)
print("openai-agents", version("openai-agents"))
play(
    begin,
    (1, "two processes", lambda: processes("slow", "slow")),
    (1, "killed, then resumed", lambda: (processes("die"), processes("again"))),
    (1, "approved twice", lambda: (resume(), resume())),
    (2, "one of two", resume),
    ("rounds", "always approve 1, then the model asks for 2", lambda: resume(always=True)),
    (1, "changed in the saved state", lambda: resume(changed=True)),
)
show("trio", attempt(lambda: trio.run(lambda: Runner.run(agent, "go", run_config=config))))
