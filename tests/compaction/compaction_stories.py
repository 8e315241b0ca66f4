"""What the tests of compaction share: a model that reads a long book page by page, and its events and requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import define, field

from tests.kit.tools import params, user
from tests.kit.world import World, open_over_http_of
from toolloop import ToolLoopHandle, tool
from toolloop.compaction import SUMMARY_PROMPT
from toolloop.events import Compacted, ThinkingDropped
from toolloop.history import estimate_tokens
from toolloop.testing import call, reply

BINDS, FREE = "claude-opus-5-5", "claude-opus-4-8"
WORDS = "The pages so far: a long journey."
USED = {"input_tokens": 900, "output_tokens": 30}


@tool(effect="pure")
def page(number: int) -> str:
    """Read a page of the book; it has about a thousand tokens."""
    return f"Page {number}. " + "It was a dark and stormy night. " * 120


@tool(needs_approval=True)
def sign(name: str) -> str:
    """Sign the visitors' book."""
    return f"signed by {name}"


TOOLS = (page, sign)


def read(number: int, **more: Any) -> dict[str, Any]:
    """The model thinks, and asks for a page."""
    return reply(thinking=f"thought {number}", calls=[call("page", {"number": number}, id=f"page-{number}")], **more)


def asks_for_summary(body: Mapping[str, Any]) -> bool:
    """Whether a request is one for a summary."""
    content = body["messages"][-1]["content"]
    return isinstance(content, list) and content[-1] == {"type": "text", "text": SUMMARY_PROMPT}


@define
class Reader:
    """A model that reads so many pages, and answers what it is asked besides.

    Attributes:
        pages: how many it reads before it is done.
        summaries: what it answers when it is asked for one; the last again and again.
        first: what it says before it reads.
        on_summary: what happens when a request for a summary comes in.

    """

    pages: int = 8
    summaries: Sequence[Any] = (reply(WORDS, usage=USED),)
    first: Sequence[Any] = ()
    on_summary: Callable[[], object] = lambda: None
    said: int = 0
    asked: int = 0

    def __call__(self, body: Mapping[str, Any]) -> Any:
        """Answer a request."""
        if asks_for_summary(body):
            self.asked += 1
            self.on_summary()
            return self.summaries[min(self.asked, len(self.summaries)) - 1]
        self.said += 1
        if self.said <= len(self.first):
            return self.first[self.said - 1]
        number = self.said - len(self.first)
        return read(number) if number <= self.pages else reply("done")


@define
class Reading(World):
    """A loop that reads, what it told, and what it sent."""

    events: list[Any] = field(factory=list)

    @property
    def compactions(self) -> list[Compacted]:
        return [event for event in self.events if isinstance(event, Compacted)]

    @property
    def problems(self) -> list[str | None]:
        return [event.problem for event in self.compactions]

    @property
    def dropped(self) -> list[int]:
        return [event.count for event in self.events if isinstance(event, ThinkingDropped)]

    @property
    def summaries(self) -> list[dict[str, Any]]:
        """The requests for summaries."""
        return [body for body in self.sent_bodies if asks_for_summary(body)]

    @property
    def page_requests(self) -> list[dict[str, Any]]:
        """The other requests."""
        return [body for body in self.sent_bodies if not asks_for_summary(body)]

    async def to_the_end(self) -> Any:
        """Drive the loop until it needs a decision, or ends."""
        handle = self.handle
        return handle.run() if isinstance(handle, ToolLoopHandle) else await handle.run()


def book(**more: Any) -> dict[str, Any]:
    """Parameters of a loop that reads."""
    return params(**{"thinking": {"type": "adaptive"}, "messages": [user("Read the book.")], **more})


def reading(driver: str, script: Any, compaction: Any = None, *, asked: Any = None, **parts: Any) -> Any:
    """A loop over real HTTP, none of whose requests the API refuses by default."""
    heard: list[Any] = []
    parts = {"tools": TOOLS, "max_iterations": 100, "compaction": compaction, "observers": [heard.append], **parts}
    return open_over_http_of(driver, script, asked or book(), world=partial(Reading, events=heard), **parts)


def size(body: Mapping[str, Any]) -> int:
    """About how many tokens a request has."""
    return estimate_tokens(body["messages"], system=body.get("system"), tools=body.get("tools"))


def pages_in(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """The numbers of the pages whose words stand in messages."""
    return [
        int(block["content"].split()[1].strip("."))
        for message in messages
        for block in message["content"]
        if isinstance(block, dict) and block["type"] == "tool_result" and block["content"].startswith("Page ")
    ]


def thoughts_in(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The thinking in messages."""
    return [
        block["thinking"]
        for message in messages
        for block in message["content"]
        if isinstance(block, dict) and block["type"] == "thinking"
    ]
