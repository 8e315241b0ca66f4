"""Random bodies of a runner's loop, and what section 11 of the design says of them: an independent model."""

from __future__ import annotations

from collections import Counter
from typing import Any

from attrs import define, field, frozen
from hypothesis import strategies as st

from tests.kit.runners import DrivenRunner
from toolloop import ToolContext, tool
from toolloop.errors import InvalidHistory

Message = dict[str, Any]


@tool
def work(ctx: ToolContext) -> str:
    """Work."""
    ctx.state.append(ctx.call_id)
    return f"{ctx.call_id}, run {ctx.state.count(ctx.call_id)}"


@frozen
class Act:
    """One thing that a body does. `which` of the calls it is about: a number of bits."""

    kind: str
    which: int = 0


KINDS = (
    "take over",
    "answer",
    "say",
    "answer without the reply",
    "reset",
    "tune",
    "respond",
    "respond",
    "retry",
    "nothing",
)
WORDS = ("say", "answer without the reply")
acts = st.builds(Act, st.sampled_from(KINDS), st.integers(0, 7))
# Of each iteration: how many calls the reply has (or that it pauses: -1), and what the body does.
programs = st.lists(st.tuples(st.sampled_from((1, 2, 3, 1, 2, -1, 0)), st.lists(acts, max_size=4)), max_size=7)


def user(content: Any) -> Message:
    return {"role": "user", "content": content}


def asked(message: Message) -> list[str]:
    content = message["content"]
    blocks = content if isinstance(content, list) else []
    return [block["id"] for block in blocks if block["type"] == "tool_use"]


def answers(message: Message) -> list[Any]:
    content = message["content"]
    return [block for block in content if block["type"] == "tool_result"] if isinstance(content, list) else []


@define
class Model:
    """What a runner is to do.

    Attributes:
        history: `params["messages"]`, as far as the loop knows it.
        mine: as the body made it; None: it changed nothing.
        reply: the current one, as it would join.
        tuned: the body changed the other parameters.
        runs: how often each call ran.

    """

    history: list[Message]
    mine: list[Message] | None = None
    reply: Message | None = None
    tuned: int = 0
    tuned_now: bool = False
    runs: Counter[str] = field(factory=Counter)

    def shown(self) -> list[Message]:
        return self.history if self.mine is None else self.mine

    def change(self, messages: list[Message]) -> None:
        """A history that was changed stays the body's, also when the change is taken back."""
        self.mine = None if self.mine is None and messages == self.history else messages

    def counts(self) -> list[Message]:
        """The history that counts when the body is over."""
        if self.mine is not None:
            return self.mine
        return [*self.history, *([self.reply] if self.reply is not None and not self.tuned_now else [])]

    def open_calls(self, history: list[Message]) -> list[str]:
        """The calls that the history ends with."""
        return asked(history[-1]) if history and history[-1]["role"] == "assistant" else []

    def is_broken(self, history: list[Message]) -> bool:
        """Whether calls before the end are not answered by the next message, or a result answers no such call."""
        known: set[str] = set()
        for message in history:
            given = {block["tool_use_id"] for block in answers(message)}
            if given != known:
                return True
            known = set(asked(message)) if message["role"] == "assistant" else set()
        return False

    def response(self, history: list[Message]) -> Message | None:
        """Run what is open, and say what answers it."""
        calls = self.open_calls(history)
        for call_id in calls:
            if not self.runs[call_id]:
                self.runs[call_id] = 1
        return user([self.result(call_id) for call_id in calls]) if calls else None

    def result(self, call_id: str) -> Any:
        content = f"{call_id}, run {self.runs[call_id]}"
        return {"type": "tool_result", "tool_use_id": call_id, "content": content}

    def closed(self, history: list[Message]) -> list[Message]:
        """The history with its open calls answered."""
        message = self.response(history)
        return history if message is None else [*history, message]


@define
class Player:
    """Plays a program on a runner, and holds it against the model."""

    driven: DrivenRunner
    model: Model
    number: int = 0

    async def act(self, act: Act) -> None:
        """One thing that a body does."""
        model, runner, reply = self.model, self.driven.runner, self.model.reply
        assert reply is not None
        calls = asked(reply)
        some = [call_id for place, call_id in enumerate(calls) if act.which & 1 << place]
        given = [{"type": "tool_result", "tool_use_id": call_id, "content": "mine"} for call_id in some]
        if _ends_in_server_call(model.shown()[-1]) and act.kind in WORDS:
            return  # it is held until the reply that ends the pause: `test_runner_waits` is about that
        match act.kind:
            case "take over" if reply not in model.shown():
                runner.append_messages(reply)
                model.change([*model.shown(), reply])
            case "answer" if given and reply == model.shown()[-1]:
                runner.append_messages(user(given))
                model.change([*model.shown(), user(given)])
            case "answer without the reply" if given and reply not in model.shown():
                runner.append_messages(user(given))
                model.change([*model.shown(), user(given)])
            case "say":
                self.number += 1
                runner.append_messages(user(f"word {self.number}"))
                model.change([*model.shown(), user(f"word {self.number}")])
            case "reset":
                back = list(model.history[: 1 + act.which % 2 * len(model.history)])
                runner.set_messages_params(lambda now: {**now, "messages": back})
                model.change(back)
            case "tune":
                model.tuned += 1
                model.tuned_now = True
                runner.set_messages_params(lambda now: {**now, "max_tokens": 300 + model.tuned})
            case "respond" | "retry":
                await self.respond([] if act.kind == "respond" else some)
        assert self.driven.shown == model.shown()

    async def respond(self, retry: list[str]) -> None:
        model = self.model
        history = model.mine if model.mine is not None else [*model.history, model.reply or user("-")]
        if model.is_broken(history) or self.is_final():
            return
        again = [call_id for call_id in retry if call_id in model.open_calls(history)]
        ran = [call_id for call_id in again if model.runs[call_id]]
        expected = model.response(history)
        for call_id in ran:
            model.runs[call_id] += 1
        expected = model.response(history) if expected is not None else None
        assert await self.driven.respond(again) == expected
        self.check_runs()

    def is_final(self) -> bool:
        reply = self.model.reply
        assert reply is not None
        return not asked(reply) and reply["content"][-1]["type"] != "server_tool_use"

    async def step(self) -> None:
        """The body is over: what goes out next, and which calls ran, is what the model says."""
        model = self.model
        history = model.counts()
        was_final = model.reply is not None and self.is_final()
        if model.reply is not None and not was_final and model.is_broken(history):
            before = self.driven.count
            try:
                await self.driven.step()
            except InvalidHistory:
                assert self.driven.count == before
                assert self.driven.shown == model.shown()
                back = model.history[:1]
                self.driven.runner.set_messages_params(lambda now: {**now, "messages": back})
                model.change(back)
                history = model.counts()
            else:
                raise AssertionError(f"a broken history went out: {history}")
        if was_final:
            assert await self.driven.is_over()
            assert self.driven.shown == history
            self.check_runs()
            return
        history = model.closed(history)
        message = await self.driven.reply()
        self.check_runs()
        assert self.driven.list_sent() == history
        assert self.driven.api.requests[-1].json["max_tokens"] == (300 + model.tuned if model.tuned else 256)
        model.history, model.mine, model.tuned_now = history, None, False
        model.reply = {"role": "assistant", "content": message["content"]}
        assert self.driven.shown == history

    def check_runs(self) -> None:
        assert Counter(self.driven.ran) == +self.model.runs


def _ends_in_server_call(message: Message) -> bool:
    content = message["content"]
    return isinstance(content, list) and bool(content) and content[-1]["type"] == "server_tool_use"
