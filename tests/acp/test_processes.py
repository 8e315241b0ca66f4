"""Agents in processes of their own: killed ones, the command, and random scripts. Nothing runs twice."""

from __future__ import annotations

import itertools
import queue
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.acp.agents import Ran, model
from tests.acp.editor import Card, Editor, NpmClients
from tests.kit.effort import IS_DEEP
from tests.kit.fork_server import Child, ForkServer
from tests.kit.warm_python import warm
from toolloop import Approve, Deny, Inbox, SqliteStore
from toolloop.acp.__main__ import main
from toolloop.machine.record import journal_events as ev
from toolloop.machine.values.calls import Outcome
from toolloop.stores import Entry
from toolloop.stores.codec import decode_event
from toolloop.testing import FakeMessagesAPI
from toolloop.testing.promises import check_promises


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(warm("tests.acp.agents")) as server:
        yield server


@pytest.fixture(scope="module")
def api() -> Iterator[FakeMessagesAPI]:
    with FakeMessagesAPI(model) as api:
        yield api


@define
class Office:
    """A store, and one agent at a time, which can be killed."""

    server: ForkServer
    api: FakeMessagesAPI
    npm: NpmClients
    folder: Path
    child: Child = field(init=False)
    editor: Editor = field(init=False)
    _numbers: Iterator[int] = field(factory=itertools.count)

    def __attrs_post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Start an agent, and connect an editor to it."""
        path = self.folder / f"s{next(self._numbers)}"
        self.child = self.server.start("agent", path=str(path), folder=str(self.folder), url=self.api.url)
        self.child.hear("listens")
        self.editor = self.npm.open(path)
        self.editor.initialize()

    def kill(self) -> None:
        """Kill the agent, and start another one."""
        self.child.kill()
        assert self.editor.is_closed.wait(30)
        self.start()

    def end(self) -> None:
        self.editor.close()
        self.child.end()

    @property
    def store(self) -> SqliteStore:
        return SqliteStore(self.folder / "loops.db")

    @property
    def ran(self) -> list[str]:
        return Ran(self.folder / "ran").lines


@pytest.fixture
def office(server: ForkServer, api: FakeMessagesAPI, npm: NpmClients) -> Iterator[Office]:
    with tempfile.TemporaryDirectory() as folder:
        office = Office(server, api, npm, Path(folder))
        yield office
        office.end()


def test_a_question_outlives_the_process(office: Office) -> None:
    """Loading the session asks again by itself, and the call runs once."""
    session = office.editor.new()
    office.editor.prompt(session, "send bo")
    office.editor.card()
    office.kill()
    office.editor.load(session)
    office.editor.card().choose("once")
    office.editor.wait_until(lambda: office.editor.said.endswith("All done."))
    assert office.ran == ["send bo"]


@pytest.mark.parametrize("option", ["again", "reject"])
def test_a_call_that_was_killed_runs_again_only_if_a_person_says_so(office: Office, option: str) -> None:
    """Its end was not seen."""
    editor = office.editor
    session = editor.new()
    editor.prompt(session, "hang")
    editor.wait_until(lambda: "it hangs" in str(editor.updates))
    office.kill()
    office.editor.load(session)
    card = office.editor.card()
    assert [each["name"] for each in card.options.values()] == ["Run it again: it may have run already", "Reject"]
    card.choose(option)
    if option == "again":
        office.editor.wait_until(lambda: "it hangs" in str(office.editor.updates))
        office.editor.cancel(session)
        office.editor.wait_until(lambda: "failed" in str(office.editor.updates))
    else:
        office.editor.wait_until(lambda: office.editor.said.endswith("All done."))
    assert office.ran == ["hang"] * (2 if option == "again" else 1)


# --- the command ---

FACTORY = """
import os, subprocess, sys
from toolloop import SqliteStore, tool
from toolloop.acp import AcpLoops
from toolloop.testing import AsyncScriptedProvider, call, reply

print("this module prints")

@tool
def chatty() -> str:
    "Print in every way that there is, and read."
    print("a tool prints")
    os.write(1, b"to the file descriptor\\n")
    subprocess.run(["echo", "a child prints"], check=True)
    return os.read(0, 99).decode() + "nothing to read"

def make(session):
    provider = AsyncScriptedProvider([reply(calls=[call("chatty", {})]), reply("Done.")])
    return AcpLoops(SqliteStore("FOLDER/loops.db"), provider, [chatty], {"model": "m", "max_tokens": 99}, person="ana")
"""


def test_only_the_protocol_is_on_standard_output(server: ForkServer, npm: NpmClients) -> None:
    """Whatever prints goes to standard error, and tools read nothing of the editor."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "chatty_factory.py").write_text(FACTORY.replace("FOLDER", folder))
        path = Path(folder, "s")
        child = server.start("command", path=str(path), folder=folder, arguments=["chatty_factory:make"])
        child.hear("listens")
        editor = npm.open(path)
        editor.initialize()
        assert editor.turn(editor.new(), "hello") == "end_turn"
        assert "nothing to read" in str(editor.updates)
        editor.close()
        assert child.end() == 0
        printed = Path(folder, "stderr").read_text().splitlines()
        assert printed == ["this module prints", "a tool prints", "to the file descriptor", "a child prints"]


@pytest.mark.parametrize("arguments", [[], ["module"], ["a:b", "c:d"], [":factory"]], ids=str)
def test_wrong_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err == "usage: python -m toolloop.acp MODULE:FACTORY\n"


def test_a_factory_that_cannot_be_imported_is_refused(server: ForkServer, npm: NpmClients) -> None:
    """It says what to set."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s")
        child = server.start("command", path=str(path), folder=folder, arguments=["nowhere:make"])
        child.hear("listens")
        editor = npm.open(path)
        assert child.end() == 2
        editor.close()
        assert "Set PYTHONPATH to the folder of the module" in Path(folder, "stderr").read_text()


# --- random scripts ---

ACTIONS = ("once", "exact", "reject", "dismiss", "unknown", "cancel", "prompt", "kill", "elsewhere yes", "elsewhere no")
CALLS = st.lists(
    st.sampled_from(["send bo", "send eve", "edit a.txt", "look b", "stall", "research send bo"]), max_size=3
)
TURNS = st.lists(st.tuples(CALLS, st.lists(st.sampled_from(ACTIONS), max_size=4)), min_size=1, max_size=3)


@define
class Script:
    """Plays turns, and does what the script says at each card, then approves."""

    office: Office
    session: str

    def play(self, calls: list[str], actions: list[str]) -> None:
        answers = [self.office.editor.prompt(self.session, ", ".join(calls) or "hello")]
        left = [*actions]
        while not all(answer.done() for answer in answers):
            try:
                card = self.office.editor.cards.get(timeout=0.05)
            except queue.Empty:
                if "it stalls" in str(self.office.editor.updates):
                    self.kill(answers)
                continue
            self.act(left.pop(0) if left else "once", card, answers)

    def act(self, action: str, card: Card, answers: list[Future[Any]]) -> None:
        match action:
            case "dismiss":
                card.dismiss()
            case "cancel":
                self.office.editor.cancel(self.session)
                card.dismiss()
            case "prompt":
                answers.append(self.office.editor.prompt(self.session, "hello"))
            case "kill":
                self.kill(answers)
            case "elsewhere yes" | "elsewhere no":
                self.decide("yes" in action)
                card.choose("once")
            case option:
                card.choose(option if option in card.options else next(iter(card.options)))

    def kill(self, answers: list[Future[Any]]) -> None:
        """Kill the agent, and go on with another one."""
        self.office.kill()
        self.office.editor.load(self.session)
        answers[:] = [self.office.editor.prompt(self.session, "hello again")]

    def decide(self, is_yes: bool) -> None:
        """Decide a call elsewhere, if one waits."""
        inbox = Inbox(self.office.store)
        for call in inbox.pending()[:1]:
            decision = Approve(by="bo") if is_yes else Deny("no", by="bo")
            inbox.decide(self.session, {call: decision}, each=True)


def returned_in(journal: Iterable[Entry]) -> Counter[str]:
    """How often the tools returned, by the journal; without a loop inside a call."""
    names, returned = dict[Any, str](), Counter[str]()
    for event in map(decode_event, journal):
        if isinstance(event, ev.Replied):
            names |= {(event.path, call.id): call.name for call in event.reply.calls()}
        elif isinstance(event, ev.Ended) and event.result is not None and event.result.outcome is Outcome.RETURNED:
            returned[names[event.path, event.call_id]] += 1
    del returned["research"]
    return returned


@given(turns=TURNS)
@settings(max_examples=1000 if IS_DEEP else 12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_script_runs_a_call_twice_or_a_denied_one(
    server: ForkServer, api: FakeMessagesAPI, npm: NpmClients, turns: list[tuple[list[str], list[str]]]
) -> None:
    """The judge reads the journal. What ran is what it says, and the session can go on."""
    with tempfile.TemporaryDirectory() as folder:
        office = Office(server, api, npm, Path(folder))
        script = Script(office, office.editor.new())
        for calls, actions in turns:
            script.play(calls, actions)
        script.play([], [])  # whatever waits is approved
        assert office.editor.turn(script.session, "hello") == "end_turn"
        journal = office.store.load(script.session).entries
        found = check_promises(journal)
        assert found.broken == ()
        ran = Counter(line.split()[0] for line in office.ran)
        starts = {name: times for name, times in found.starts.items() if name != "research"}
        # A kill or a cancel may come before a call does anything; then the journal has no result of it.
        assert returned_in(journal) <= ran <= Counter(starts)
        if not any({"kill", "cancel"}.intersection(actions) for _, actions in turns):
            assert ran == starts
        shown = Inbox(office.store).show(script.session)
        assert shown["status"] == "ended"
        office.end()
    assert [each for each in api.refused if each.body] == []  # a process that was killed may have sent no body yet
