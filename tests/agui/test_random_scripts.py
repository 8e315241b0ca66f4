"""Whatever clients do, and whenever the server is killed: a judge reads the journal, the model server and the wire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from queue import SimpleQueue
from typing import Any

import pytest
from attrs import define, field
from hypothesis import given, settings, strategies as st

from tests.agui.programs import PARAMS
from tests.agui.site import LOCATION, NO, YES, Client, Node, Run, Site, entry, open_site
from tests.kit.effort import IS_DEEP
from tests.kit.fork_server import ForkServer
from toolloop import Approve, Deny, ToolLoopHandle
from toolloop.agui.conversation import SHOWS
from toolloop.errors import CallerError
from toolloop.inbox import TrailEntry
from toolloop.testing import ScriptedProvider
from toolloop.testing.promises import check_promises

KINDS: dict[str, Any] = {
    "approve": YES,
    "edit": {"approved": True, "editedArgs": {"path": "edited.txt", "text": "edited"}},
    "deny": NO,
    "dismiss": None,
    "rerun": {"rerun": True},
    "answer": {"answer": "It ended well."},
    "nonsense": {"approved": "perhaps"},
}
PERSONS = st.sampled_from(["ana", "ana", "guest"])
TARGETS = st.sampled_from(["right", "right", "old", "foreign", "unknown"])
RESUME = st.tuples(st.just("resume"), PERSONS, st.sampled_from([*KINDS]), TARGETS)
EVENTS = st.tuples(st.sampled_from(["same_run", "leave", "make_up", "page", "kill", "crash"]))
STEPS = st.one_of(
    st.tuples(st.just("run"), PERSONS, st.sampled_from(["write", "two", "mixed", "read", "hello", "nested"])),
    RESUME,
    RESUME,
    st.tuples(st.just("at_once"), st.sampled_from([*KINDS]), st.sampled_from([*KINDS])),
    EVENTS,
    EVENTS,
)
_NUMBERS = count()


@pytest.fixture(scope="module")
def site(forks: ForkServer, node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server whose persons share their threads, and that shows all there is."""
    with open_site(forks, node, tmp_path_factory.mktemp("agui"), is_shared=True, show=SHOWS) as site:
        yield site


@define
class Life:
    """One thread, and what clients do to it."""

    site: Site
    thread: str = field(init=False)
    seen: list[str] = field(factory=list)  # the ids of interrupts
    last: Client | None = None
    last_run: str = "never"
    left: list[SimpleQueue[Any]] = field(factory=list)
    was_killed: bool = False

    def __attrs_post_init__(self) -> None:
        self.thread = f"life{next(_NUMBERS)}"
        params = {**PARAMS, "messages": []}
        opening = ToolLoopHandle.open(
            self.site.store, self.thread, ScriptedProvider([]), params=params, metadata={"agui": "agui"}
        )
        with opening:
            pass

    def client(self, user: str = "ana") -> Client:
        """Return a new client: it has no messages, and no interrupts that it must answer."""
        return self.site.client(self.thread, user)

    def note(self, run: Run) -> Run:
        """Check what holds for every run, and remember its interrupts."""
        assert run.refused is None, run.refused
        assert run.end["type"] == "RUN_FINISHED", run.end
        assert run.types[0] == "RUN_STARTED"
        names = [each["id"] for each in run.messages]
        assert len({*names}) == len(names)
        self.seen += [each["id"] for each in run.pending if each["id"] not in self.seen]
        self.last_run = run.events[0]["runId"]
        return run

    # --- steps -------------------------------------------------------------------------------------------------------

    def run(self, user: str, word: str) -> None:
        self.last = self.client(user)
        self.note(self.last.run(f"{word} [{self.thread}]", tools=[LOCATION]))

    def answers(self, kind: str, target: str) -> list[Any]:
        """Return the answers of a kind to the interrupts that are meant."""
        calls = self.site.inbox.show(self.thread)["pending"]
        waiting = [f"{'/'.join(call['path'])}#{call['digest']}" for call in calls]
        named = {"right": waiting, "old": self.seen, "foreign": ["tu_1_a#" + "0" * 64], "unknown": ["unknown", "#"]}
        return [entry(each, KINDS[kind]) for each in named[target]]

    def resume(self, user: str, kind: str, target: str) -> None:
        self.note(self.client(user).run(resume=self.answers(kind, target), tools=[LOCATION]))

    def at_once(self, one: str, other: str) -> None:
        clients = [self.client(), self.client()]
        given = [self.answers(kind, "right") for kind in (one, other)]
        running = [client.begin(resume=resume) for client, resume in zip(clients, given, strict=True)]
        first, second = (self.note(self.site.run_of(each)) for each in running)
        assert first.messages == second.messages or first.end != second.end  # one may have ended before

    def same_run(self) -> None:
        if self.last is not None:
            self.note(self.last.run(runId=self.last_run, resume=[entry(each, None) for each in self.seen]))

    def leave(self) -> None:
        client = self.client()
        client.say(f"read [{self.thread}]")
        self.left.append(client.begin())
        client.leave()

    def make_up(self) -> None:
        looked = self.note(self.client().run())
        client = self.site.client(self.thread, messages=looked.messages)
        for call_id in ("tu_1_a", f"tu_1_a_{self.thread}", f"tu_1_b_{self.thread}"):
            client.add({"id": f"made-up-{call_id}", "role": "tool", "toolCallId": call_id, "content": "made up"})
        self.note(client.run(tools=[LOCATION]))

    def page(self) -> None:
        inbox = self.site.inbox.as_("bo", via="page")
        for call in inbox.show(self.thread)["pending"]:
            with suppress(CallerError):
                inbox.decide(self.thread, {"/".join(call["path"]): Approve(digest=call["digest"])})
        for call in inbox.show(self.thread)["pending"][:1]:
            with suppress(CallerError):
                inbox.decide(self.thread, {"/".join(call["path"]): Deny("not this")})

    def kill(self) -> None:
        self.was_killed = True
        self.site.restart()
        if self.last is not None:
            self.site.node.ask("move", name=self.last.name, url=self.site.url)

    def crash(self) -> None:
        """Kill the server while a tool runs: the end of its call is uncertain."""
        client, stalls = self.client(), self.site.folder / "stalls"
        client.say(f"stall [{self.thread}]")
        stalls.touch()
        running = client.begin()
        while running.empty() and not self.site.server.line.says_within(0.02):
            pass  # it ends without a call if another one waits: what was said is kept then
        self.kill()
        stalls.unlink()
        self.left.append(running)

    # --- the judge ---------------------------------------------------------------------------------------------------

    def finish(self) -> Run:
        """Deny what waits, and speak once more: every client can go on."""
        for each in self.left:
            self.site.run_of(each)
        client = self.client()
        run = self.note(client.run(tools=[LOCATION]))
        while run.pending or "pendingToolCallIds" in run.end["outcome"]:
            for call_id in run.end["outcome"].get("pendingToolCallIds", ()):
                client.add({"id": f"answer-{call_id}", "role": "tool", "toolCallId": call_id, "content": "here"})
            run = self.note(client.answer(*[NO for _ in run.pending], tools=[LOCATION]))
        ended = self.note(client.run("goodbye"))
        assert ended.said[-1] == ("assistant", "You said: goodbye"), ended.said
        return ended

    def judge(self, ended: Run) -> None:
        """Compare what ran, what was decided, what the model was sent, and what the client shows."""
        lines = [line.split() for line in self.site.ran() if self.thread in line]
        ran, tools = Counter(line[0] for line in lines), Counter(line[1] for line in lines)
        found = check_promises(self.site.store.load(self.thread).entries)
        assert found.broken == ()
        assert all(number <= found.starts[name] for name, number in tools.items()), (tools, found.starts)
        trail = self.site.inbox.trail(self.thread)
        assert not {each.by for each in trail if each.path} & {"guest"}
        reruns = Counter(each.path[-1] for each in trail if each.kind == "rerun")
        assert all(number <= 1 + reruns[call_id] for call_id, number in ran.items()), (ran, reruns)
        for each in trail:
            if each.path and each.outcome is not None:
                self.judge_call(each.path[-1], each, ran[each.path[-1]])
        assert self.site.api.refused == []
        self.judge_client(ended)

    def judge_call(self, call_id: str, entry_: TrailEntry, times: int) -> None:
        if entry_.kind == "deny":
            assert times == 0 or self.was_killed
        if entry_.kind == "approve" and entry_.outcome == "returned" and entry_.name == "write_file":
            assert times == 1
            given = entry_.content or entry_.input
            assert f"{call_id} write_file {given['path']} {given['text']}" in self.site.ran()

    def judge_client(self, ended: Run) -> None:
        """The client has each result once, as the loop has it, and so does the next client."""
        shown = [block for each in self.site.inbox.show(self.thread)["messages"] for block in blocks(each)]
        results = {each["tool_use_id"]: text_of(each) for each in shown if each["type"] == "tool_result"}
        told = [each for each in ended.messages if each["role"] == "tool"]
        assert len(told) == len(results)
        assert {each["toolCallId"]: each["content"] for each in told} == results
        looked = self.site.client(self.thread).run()
        assert [without_id(each) for each in looked.messages] == [without_id(each) for each in ended.messages]


def text_of(result: Any) -> str:
    content = result["content"]
    return content if isinstance(content, str) else "\n".join(block["text"] for block in content)


def blocks(message: Any) -> list[Any]:
    content = message["content"]
    return [] if isinstance(content, str) else content


def without_id(message: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != "id"}


@given(st.lists(STEPS, min_size=2, max_size=6))
@settings(max_examples=1000 if IS_DEEP else 38)
def test_no_call_runs_twice_and_every_client_can_go_on(site: Site, steps: list[tuple[Any, ...]]) -> None:
    life = Life(site)
    for name, *given_ in steps:
        getattr(life, name)(*given_)
    life.judge(life.finish())
