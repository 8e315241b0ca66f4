"""What a model may say, and what a caller may: drawn.

A call carries its own fate in its input: `ask` is read by the policy, `do` by the tool. So the replies of a failing
example say what happens.
"""

from __future__ import annotations

from typing import Any

from attrs import field, frozen
from hypothesis import strategies as st

from toolloop.testing import dropped, fault, html

BIG = 2**70 + 1
PAUSES = ("pause_turn", "compaction")
TASK = "task"  # what the user says in a nested loop, with a number
STOP, BOOM = "say stop", "say boom"  # what `stop_when` listens for

ASKS = st.sampled_from(
    ["", "", "", "approve", "deny", "answer", "edit", "human", "human", "human", "soon", "fresh", "raise"]
)
#: What a tool may do to its own loop while it runs, and a caller to one that waits for its reply.
MEDDLING = ["interrupt", "inject", "stop", "revoke", "wait", "take", "beside"]
DOES = st.sampled_from(
    ["return", "return", "return", "return", "raise", "image", "nothing", "long", "interrupt", *MEDDLING]
)
NAMES = st.sampled_from(["work", "work", "pure", "gate", "gate", "maybe", "ask_user", "nobody"])


@frozen
class Said:
    """A reply that the fake API makes whole: `WholeScript` gives its blocks their ids and texts.

    Args:
        kinds: of the blocks before the calls.
        calls: name and input of each.
        stop_reason: anything the API may say.
        results_first: whether it begins with the results of the server calls that are open.
        by_code: whether its calls are made by code execution, in a container of their own.
        toolset: whether its calls are of members of a toolset.

    """

    kinds: tuple[str, ...]
    calls: tuple[tuple[str, dict[str, Any]], ...]
    stop_reason: str | None
    results_first: bool
    by_code: bool
    toolset: bool
    usage: dict[str, int] = field(repr=False)


KINDS = ["text", "text", "blank", "thinking", "redacted", "hologram", "search", "search_open", STOP, BOOM, BOOM]


@st.composite
def inputs(draw: st.DrawFn) -> dict[str, Any]:
    """What a call asks for; now and then something that fits no schema. The order of the keys is odd."""
    if draw(st.integers(0, 9)) == 0:
        return {"do": 7, "what": {"z": BIG, "a": None}}
    given = {"do": draw(DOES), "ask": draw(ASKS), "n": draw(st.sampled_from([0, BIG, -BIG]))}
    return {key: given[key] for key in draw(st.permutations(sorted(given)))}


@st.composite
def messages(
    draw: st.DrawFn,
    *,
    stop_reason: st.SearchStrategy[str | None],
    calls: st.SearchStrategy[int],
    names: st.SearchStrategy[str] = NAMES,
) -> Said:
    many = draw(calls)
    return Said(
        kinds=tuple(draw(st.lists(st.sampled_from(KINDS), max_size=3))),
        calls=tuple((draw(names), draw(inputs())) for _ in range(many)),
        stop_reason=draw(stop_reason),
        results_first=draw(st.booleans()),
        by_code=draw(st.integers(0, 7)) == 0,
        toolset=draw(st.integers(0, 3)) == 0,
        usage={"input_tokens": draw(st.integers(0, 50)), "output_tokens": draw(st.integers(0, 50))},
    )


CALLING = messages(stop_reason=st.just("tool_use"), calls=st.sampled_from([1, 2, 2, 3, 4, 5]))
ENDING = messages(
    stop_reason=st.sampled_from(["end_turn", "end_turn", "stop_sequence", "a_new_reason"]),
    calls=st.sampled_from([0, 0, 0, 1]),
)
PAUSING = messages(stop_reason=st.sampled_from(["pause_turn", "pause_turn", "compaction"]), calls=st.just(0))
ODD = messages(
    stop_reason=st.sampled_from(
        ["max_tokens", "model_context_window_exceeded", "refusal", "tool_use", "pause_turn", None]
    ),
    calls=st.integers(0, 2),
)
FAULTS = st.sampled_from([fault(429, retry_after=2), fault(500), fault(400), fault(529), dropped(), html()])


def replies() -> st.SearchStrategy[Said]:
    """Replies of every kind; most of them call tools."""
    return st.one_of(CALLING, CALLING, CALLING, PAUSING, ENDING, ODD)


def answers() -> st.SearchStrategy[Any]:
    """Replies, and what else may come of a request."""
    return st.one_of(replies(), replies(), replies(), replies(), FAULTS)


class WholeScript:
    """A script for `FakeMessagesAPI`: gives each `Said` its ids and words, none of them twice.

    Args:
        said: the answers, in order; when they have run out, the model says goodbye.

    """

    def __init__(self, said: list[Any] | None = None) -> None:
        """Nothing was said yet."""
        self.said = said or []
        self._count = 0

    def __call__(self, body: dict[str, Any]) -> Any:
        """Answer a request."""
        said = (
            self.said.pop(0) if self.said else Said(("text",), (), "end_turn", True, False, False, {"input_tokens": 1})
        )
        return self.answer(said, body)

    def answer(self, said: Any, body: dict[str, Any]) -> Any:
        """Make an answer whole."""
        return self._whole(said, body) if isinstance(said, Said) else said

    def _whole(self, said: Said, body: dict[str, Any]) -> dict[str, Any]:
        content = [_found(call) for call in _open_searches(body)] if said.results_first else []
        for kind in said.kinds:
            content += self._blocks(kind)
        solid = [kind for kind in said.kinds if kind != "blank"]
        if said.stop_reason in PAUSES and solid[-1:] in (["thinking"], ["redacted"]):
            content += self._blocks("text")  # what ends in thinking cannot be sent back, and a pause is
        more: dict[str, Any] = {"toolset_name": "browser"} if said.toolset else {}
        beside: dict[str, Any] = {}
        if said.by_code and said.calls:
            run = {"type": "server_tool_use", "id": self._new("srvtoolu"), "name": "code_execution", "input": {}}
            content.append(run)
            more = {"caller": {"type": "code_execution_20250825", "tool_id": run["id"]}}
            beside = {"container": {"id": self._new("container"), "expires_at": "2026-12-31T00:00:00Z"}}
        for name, drawn in said.calls:
            given = {"prompt": self._new(TASK)} if name == "nested" else drawn
            content.append({"input": given, "type": "tool_use", "name": name, "id": self._new("toolu"), **more})
        if said.stop_reason == "compaction":
            content.append({"type": "compaction", "content": self._new("summary")})
        if said.stop_reason == "refusal":
            beside["stop_details"] = {"category": "cyber", "explanation": None}
        made = {"content": content, "stop_reason": said.stop_reason, **beside}
        self._count += 1  # no two replies use the same, so each entry of a log names its reply
        return {**made, "usage": {**said.usage, "input_tokens": self._count}}

    def _blocks(self, kind: str) -> list[dict[str, Any]]:
        search = {"type": "server_tool_use", "id": self._new("srvtoolu"), "name": "web_search", "input": {"q": BIG}}
        match kind:
            case "blank":
                return [{"type": "text", "text": " \n"}]
            case "thinking":
                return [{"type": "thinking", "thinking": self._new("hm")}]
            case "redacted":
                return [{"type": "redacted_thinking", "data": self._new("hm")}]
            case "hologram":
                return [{"z": BIG, "type": "hologram", "a": [{"y": 1.50, "x": self._new("h")}]}]
            case "search":
                return [search, _found(search)]
            case "search_open":
                return [search]
        words = {"text": "words"}.get(kind, kind)
        return [{"text": self._new(words), "type": "text"}]

    def _new(self, word: str) -> str:
        self._count += 1
        return f"{word}_{self._count}"


def _found(call: dict[str, Any]) -> dict[str, Any]:
    kind = {"web_search": "web_search_tool_result"}.get(call["name"], "code_execution_tool_result")
    return {"tool_use_id": call["id"], "type": kind, "content": [{"page": BIG}]}


def _open_searches(body: dict[str, Any]) -> list[dict[str, Any]]:
    contents = [message["content"] for message in body["messages"] if isinstance(message["content"], list)]
    blocks = [block for content in contents for block in content]
    done = {block.get("tool_use_id") for block in blocks}
    return [block for block in blocks if block["type"] == "server_tool_use" and block["id"] not in done]
