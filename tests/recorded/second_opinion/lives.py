"""Random lives of a loop that does what a caller may ask of it: parameters, edits, injections; and what it sent."""

from __future__ import annotations

import json
from collections.abc import Callable, MutableSequence
from contextlib import suppress
from itertools import cycle
from typing import Any

from attrs import define, evolve, field, frozen
from hypothesis import strategies as st

from tests.promises.properties.checked_tools import PARAMS_TOOLS, PNG
from tests.promises.properties.drawn_compaction import COMPACTIONS, STRATEGIES, SUMMARIES, SummingScript
from tests.promises.properties.drawn_programs import THREAD_FAULTS
from tests.promises.properties.drawn_replies import PAUSES, Said, answers
from tests.recorded.second_opinion.shapes import Block, Body
from toolloop import LoopConfig, ToolError, ToolLoopHandle, Yielded, tool
from toolloop.errors import CallerError
from toolloop.providers import AnthropicProvider
from toolloop.testing import FakeMessagesAPI

MARK: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
LONG_MARK: dict[str, Any] = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
_SEARCH = {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "found"}]}
_RESULTS: list[Any] = ["done", "", " ", None, [], [PNG], {"a": 1}, [{"type": "text", "text": "x"}, PNG], [_SEARCH]]


@tool
def work(do: str = "", ask: str = "", n: int = 0) -> Any:
    """Work."""
    if do == "raise":
        raise ToolError([PNG] if n else "")
    return _RESULTS[len(do + ask) % len(_RESULTS)]


@tool(needs_approval=True)
def gate(do: str = "", ask: str = "", n: int = 0) -> Any:
    """Do harm."""
    return work(do, ask, n)


@tool(effect="pure")
def pure(do: str = "", ask: str = "", n: int = 0) -> Any:
    """Look."""
    return [{"type": "text", "text": "seen", **MARK}]


@define
class Wire:
    """A provider that keeps what goes over it: each request as the model saw it, with the content of its reply."""

    api: FakeMessagesAPI
    takes_threads: bool
    exchanges: list[tuple[Body, list[Block]]] = field(factory=list)

    def send(self, request: Any) -> Any:
        try:
            reply = AnthropicProvider(self.api.client()).send(request)
        except Exception:
            self._keep([])
            raise
        self._keep(json.loads(reply.text or "{}").get("content", []))
        return reply

    def _keep(self, content: list[Block]) -> None:
        sent = self.api.requests[-1]
        if not str(sent.refusal).startswith("thread: "):  # of that, only a part was sent
            body = {name: value for name, value in (sent.whole or sent.json).items() if name != "thread"}
            self.exchanges.append((body, content))


@frozen
class Life:
    """What the caller sets up and does, turn by turn, and what the model answers."""

    params: dict[str, Any]
    compaction: tuple[str, ...]
    threads: bool
    thread_faults: tuple[str | None, ...]
    answers: list[Any]
    summaries: list[Any]
    acts: list[tuple[str, int]]


def as_the_api_says(answer: Any) -> Any:
    """Return an answer without things that the API never sends: blocks of no type, and a pause with no open call."""
    if not isinstance(answer, Said):
        return answer
    kinds = tuple("text" if kind == "hologram" else kind for kind in answer.kinds)
    pauses = answer.stop_reason in PAUSES and answer.stop_reason != "compaction" and not answer.calls
    return evolve(answer, kinds=(*kinds, "search_open") if pauses else kinds)


def _thoughtful(answer: Any, body: Body) -> Any:
    """Let a model that thinks by hand begin with a thought, as it does, and others now and then."""
    kind = (body.get("thinking") or {}).get("type")
    if isinstance(answer, dict) and answer.get("content") and (kind == "enabled" or len(str(answer)) % 3 == 0):
        thought = {"type": "thinking", "thinking": f"hm {answer['usage']['input_tokens']}"}
        return {**answer, "content": [thought, *answer["content"]]} if kind else answer
    return answer


_MANUAL = {"type": "enabled", "budget_tokens": 1024}
_ADAPTIVE = {"type": "adaptive"}
_TEXT = {"type": "text", "text": "Begin."}
_SETTINGS: list[dict[str, Any]] = [
    {"model": "claude-opus-5-5", "thinking": _ADAPTIVE},
    {"model": "claude-opus-4-8", "thinking": _ADAPTIVE, "system": "Be brief."},
    {"model": "claude-sonnet-4-5", "thinking": _MANUAL, "max_tokens": 3000},
    {"model": "claude-haiku-4-5", "tool_choice": {"type": "any"}},
    {"model": "claude-fable-5", "system": [{**_TEXT, **LONG_MARK}], "cache_control": MARK["cache_control"]},
    {"model": "claude-sonnet-4-6", "thinking": _ADAPTIVE, "messages": [{"role": "user", "content": [_TEXT | MARK]}]},
]
_UPDATES: list[dict[str, Any]] = [
    {"max_tokens": 1000},
    {"max_tokens": 5000, "thinking": _MANUAL, "model": "claude-sonnet-4-5"},
    {"thinking": _ADAPTIVE, "model": "claude-opus-4-8"},
    {"tool_choice": {"type": "any"}},
    {"tool_choice": {"type": "tool", "name": "work"}},
    {"system": [{**_TEXT, **MARK}]},
    {"system": [{**_TEXT, **LONG_MARK}], "stop_sequences": ["END"]},
    {"cache_control": MARK["cache_control"]},
    {"cache_control": LONG_MARK["cache_control"]},
]
_SAYINGS: list[Any] = [
    "And now?",
    [{**_TEXT, **MARK}],
    [{**_TEXT, **LONG_MARK}],
    [PNG, _TEXT],
    " ",
    [],
    [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}}],
]


def _edit(handle: Any, number: int) -> None:
    history = handle.messages_mut()
    what, place = number % 9, number // 9 % max(1, len(history))
    match what:
        case 0:
            del history[place : place + 1]
        case 1:
            history[:] = history[place:]
        case 2:
            history.insert(place, {"role": "user", "content": _SAYINGS[number % len(_SAYINGS)]})
        case 3:
            history.insert(place, {"role": "assistant", "content": [[], "Well. ", "Well."][number % 3]})
        case 4:
            history.append({"role": "system", "content": "Mind this."})
        case 5 | 6 | 7:
            _edit_block(history[place]["content"] if history else [], number)
        case _:
            history[:] = [{"role": "user", "content": "A summary."}]


def _edit_block(blocks: Any, number: int) -> None:
    if not isinstance(blocks, MutableSequence) or not blocks:
        return
    place = number // 3 % len(blocks)
    match number % 3:
        case 0:
            del blocks[place]
        case 1:
            blocks[place] |= [MARK, LONG_MARK][number % 2]
        case _:
            blocks.append(blocks.pop(place))


def _say(handle: Any, number: int) -> None:
    said = [{"role": "user", "content": _SAYINGS[number % len(_SAYINGS)]}]
    if handle.pending_turn is not None:
        handle.pending_turn.inject_and_continue(said)
    else:
        handle.follow_up(said)


_ACTS: dict[str, Callable[[Any, int], object]] = {
    "go on": lambda _handle, _number: None,
    "say": _say,
    "edit": _edit,
    "update": lambda handle, number: handle.update_params(**_UPDATES[number % len(_UPDATES)]),
}


def lives() -> st.SearchStrategy[Life]:
    """Lives of up to eight turns."""
    names = st.sampled_from(["go on", "go on", "say", "edit", "edit", "update"])
    defaults = {"max_tokens": 2000, "messages": [{"role": "user", "content": "Begin."}], "tools": PARAMS_TOOLS}
    return st.builds(
        Life,
        params=st.sampled_from(_SETTINGS).map(lambda setting: {**defaults, **setting}),
        compaction=COMPACTIONS,
        threads=st.booleans(),
        thread_faults=st.sampled_from([(None,), (None, None, *THREAD_FAULTS)]),
        answers=st.lists(answers().map(as_the_api_says), min_size=3, max_size=8),
        summaries=st.lists(SUMMARIES.map(as_the_api_says), max_size=2),
        acts=st.lists(st.tuples(names, st.integers(0, 500)), min_size=4, max_size=8),
    )


def lived(life: Life) -> list[tuple[Body, list[Block]]]:
    """Live, and return what was sent, as the model saw it, each request with the content of its reply."""
    faults = cycle(life.thread_faults)
    script = SummingScript(list(life.answers), list(life.summaries))
    with FakeMessagesAPI(lambda body: _thoughtful(script(body), body), refuse_thread=lambda _: next(faults)) as api:
        wire = Wire(api, life.threads)
        config = LoopConfig(
            compaction=[STRATEGIES[name] for name in life.compaction], threads=life.threads, max_iterations=None
        )
        handle = ToolLoopHandle(wire, params=life.params, tools=[work, gate, pure], config=config)
        for name, number in life.acts:
            with suppress(CallerError):
                _decide(handle.next_turn(), number)
            with suppress(CallerError):
                _ACTS[name](handle, number)
            with suppress(CallerError):
                _get_on(handle)
        return wire.exchanges


def _decide(turn: Any, number: int) -> None:
    for place, call in enumerate(turn.pending if isinstance(turn, Yielded) else ()):
        match number + place:
            case even if even % 2 == 0 and call.why == "approval":
                turn.approve(call)
            case third if third % 3 == 0:
                turn.deny(call, "no")
            case _:
                turn.answer(call, [PNG] if number % 5 == 0 else "known", is_error=number % 7 == 0)


def _get_on(handle: Any) -> None:
    if handle.pending_turn is not None:
        handle.pending_turn.continue_loop()
    elif handle.status == "failed":
        handle.retry()
    elif handle.status == "ended":
        handle.follow_up([{"role": "user", "content": "And now?"}])
