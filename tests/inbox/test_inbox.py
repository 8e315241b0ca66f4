"""The inbox: what waits, and what a person decides and says without the tools."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, strategies as st

from tests.inbox.support import PARAMS, PAY, SEND, desk, desk_of
from tests.kit.effort import examples
from tests.kit.postgres import in_postgres
from tests.kit.warm_python import Piped
from tests.kit.world import World, each_store
from toolloop import (
    Answer,
    Approve,
    AsyncInbox,
    Completed,
    Deny,
    Inbox,
    LoopConfig,
    MemoryStore,
    Rerun,
    SqliteStore,
    ToolLoopHandle,
    Yielded,
    sub_loop,
    tool,
)
from toolloop.errors import (
    AlreadyDecided,
    CallerError,
    DecisionConflict,
    IllegalCommand,
    LoopNotFound,
    ModelError,
    UnknownCall,
)
from toolloop.testing import ScriptedProvider, call, reply

# --- what waits -------------------------------------------------------------------------------------------------------


@each_store
def test_the_calls_of_all_loops_come_in_pages_by_deadline_and_age(where: str, tmp_path: Path) -> None:
    """A cursor stays valid when loops are deleted; what has expired, and other people's calls, are not shown."""
    at = desk(where, tmp_path)
    deadlines = {"never": None, "late": 600.0, "over": 5.0, "soon": 60.0, "old": None}
    for loop_id, timeout in deadlines.items():
        at.config = {"decision_timeout": timeout}
        at.drive(loop_id, metadata={"owner": "bo" if loop_id == "old" else "ana", "title": loop_id})
        at.now += 1
    at.now += 5
    order = [(name, each) for name in ("soon", "late", "never", "old") for each in ("c1", "c2")]
    assert [(each.loop_id, each.id) for each in at.inbox.pending()] == order
    assert [each.loop_id for each in at.inbox.pending({"owner": "bo"})] == ["old"] * 2
    seen, cursor = [], None
    while True:
        page = at.inbox.pending(limit=3, cursor=cursor)
        seen += [(each.loop_id, each.id) for each in page]
        if (cursor := page.cursor) is None:
            break
        at.store.delete(page[-1].loop_id)
    assert seen == [("soon", "c1"), ("soon", "c2"), ("late", "c1"), ("never", "c1"), ("never", "c2"), ("old", "c1")]
    for text in ("x", "null", "[" * 9999, f"[1{'0' * 999}, 0, '', []]".replace("'", '"')):
        for cursor in (text, base64.urlsafe_b64encode(text.encode()).decode()):
            with pytest.raises(ValueError, match="cursor"):
                at.inbox.pending(cursor=cursor)


def test_a_call_shows_what_a_person_needs_to_decide() -> None:
    """It is a key of `decide`, and binds the decision to what was shown."""
    at = desk_of(MemoryStore(), config={"decision_timeout": 60.0})
    at.drive(metadata={"owner": "ana"})
    first = at.inbox.pending()[0]
    assert (first.loop_id, first.id, first.path, first.names, first.name) == ("loop", "c1", ("c1",), ("pay",), "pay")
    assert (first.input, first.truncated, first.why, first.reason) == (PAY["input"], False, "approval", None)
    assert first.takes == ("approve", "deny", "answer")
    assert first.expires_at == datetime.fromtimestamp(at.now + 60, UTC)
    assert first.metadata == {"owner": "ana"}
    at.inbox.decide("loop", {first: Approve(by="ana")})
    assert '"digest"' in at.store.load("loop").entries[-1].body
    with pytest.raises(UnknownCall, match="belongs to loop 'loop'"):
        at.inbox.decide("other", {first: Approve()})


# --- deciding ---------------------------------------------------------------------------------------------------------

DECISIONS = st.sampled_from(
    [
        Approve(by="ana"),
        Approve(input={"to": "cy", "euros": 1}),
        Approve(input={"to": 7}),
        Deny("no", by="bo"),
        Answer("done by hand"),
        Answer([{"type": "text", "text": "by hand"}], is_error=True),
        Rerun(),
        Approve(digest="other"),
        True,
    ]
)
MOVES = st.lists(st.dictionaries(st.sampled_from(["c1", "c2", "/c1", "c3"]), DECISIONS, max_size=3), max_size=4)


def outcome(act: Callable[[], object]) -> Any:
    try:
        act()
    except (CallerError, TypeError) as error:
        return type(error), {name: value for name, value in vars(error).items() if name != "at"}
    return None


@examples(40)
@given(MOVES)
def test_a_decision_by_the_inbox_is_one_by_a_handle(moves: list[dict[str, Any]]) -> None:
    """The same is decided, refused and run; all of it, or none."""
    by_handle, by_inbox = desk_of(MemoryStore()), desk_of(MemoryStore())
    for at in (by_handle, by_inbox):
        at.drive()
    for decisions in moves:
        before = by_inbox.store.load("loop")
        with by_handle.open() as handle:
            expected = outcome(lambda decisions=decisions, handle=handle: handle.decide(decisions))  # type: ignore[misc]
            if not handle.pending and handle.pending_turn is not None:
                handle.pending_turn.continue_loop()
        got = outcome(lambda decisions=decisions: by_inbox.inbox.decide("loop", decisions))  # type: ignore[misc]
        assert got == expected
        if got is not None:
            assert by_inbox.store.load("loop") == before
        assert by_inbox.status() == by_handle.status()
    ends = [at.drive() for at in (by_handle, by_inbox)]
    assert by_inbox.did == by_handle.did
    assert by_inbox.inbox.show("loop")["messages"] == by_handle.inbox.show("loop")["messages"]
    assert [type(end) for end in ends] in ([Completed] * 2, [type(ends[0])] * 2)


@pytest.mark.parametrize("where", ["memory", "sqlite", in_postgres])
def test_the_last_decision_makes_the_loop_runnable_in_one_append(where: str, tmp_path: Path) -> None:
    """A worker goes on by itself, also where next_turn() had given the turn to a caller."""
    at = desk(where, tmp_path)
    with at.open() as handle:
        handle.next_turn()
    at.inbox.decide("loop", {"c1": Approve(by="ana")})
    assert (at.status(), at.journal()[-1]) == ("needs_decision", "Decided")
    rev = at.store.head("loop").rev
    at.inbox.decide("loop", {"c2": Deny("too much", by="bo")})
    assert (at.status(), at.store.head("loop").rev) == ("runnable", rev + 2)
    assert at.journal()[-2:] == ["Decided", "Continued"]
    assert at.drive().unwrap().text == "Both are paid."
    assert at.did == [("pay", "ana", 5)]


def test_an_edited_input_is_checked_against_the_stored_schema() -> None:
    """Also that of a tool of a loop inside a call; the loop stays as it was."""

    @tool(needs_approval=True)
    def pay(to: str, euros: int) -> str:
        """Pay."""
        return f"paid {euros} to {to}"

    clerk = sub_loop("clerk", "Pays.", params={"model": "claude-opus-5-5", "max_tokens": 9}, tools=[pay])
    store = MemoryStore()
    script = ScriptedProvider([reply(calls=[call("clerk", {"prompt": "x"}, id="p")]), reply(calls=[PAY])])
    with ToolLoopHandle.open(store, "loop", script, tools=[clerk], params=PARAMS) as handle:
        handle.run()
    inbox = Inbox(store)
    (waits,) = inbox.pending()
    assert (waits.path, waits.names) == (("p", "c1"), ("clerk", "pay"))
    for bad, problem in (({"to": "ana"}, "euros"), ({"to": "ana", "euros": "many"}, "integer"), ({"o": 1}, "o")):
        with pytest.raises(IllegalCommand, match=f"(?s)does not fit the schema of pay.*{problem}"):
            inbox.decide("loop", {waits: Approve(input=bad)})
    assert inbox.pending()[0] == waits
    inbox.decide("loop", {"p/c1": Approve(input={"to": "ana", "euros": 1})})
    assert store.head("loop").status == "runnable"


def test_a_second_person_learns_who_decided_and_what() -> None:
    """While the round is open, and after it was closed and the loop went on."""
    at = desk_of(MemoryStore())
    at.drive()
    first = at.inbox.pending()[0]
    at.inbox.decide("loop", {first: Approve(by="ana")})
    at.inbox.decide("loop", {first: Approve(by="bo")})  # the same again
    with pytest.raises(DecisionConflict) as conflict:
        at.inbox.decide("loop", {first: Deny("no", by="bo")})
    told = conflict.value
    assert (told.decision, told.by, told.at) == ("approve", "ana", datetime.fromtimestamp(at.now, UTC))
    at.now += 60
    at.inbox.decide("loop", {"c2": Deny("no", by="cy")})
    at.drive()
    for name, expected in (("c1", ("approve", "ana")), ("c2", ("deny", "cy"))):
        with pytest.raises(AlreadyDecided, match=f"{expected[0]} by {expected[1]}") as already:
            at.inbox.decide("loop", {name: Deny("no", by="bo")})
        assert (already.value.decision, already.value.by) == expected
        assert already.value.at is not None


def test_a_decision_that_comes_too_late_is_refused() -> None:
    """By the clock of the person who decides. That of a driver lets the call expire, and the loop go on."""
    at = desk_of(MemoryStore(), config={"decision_timeout": 60.0})
    at.drive()
    waits = at.inbox.pending()[0]
    at.now += 61
    assert list(at.inbox.pending()) == []
    with pytest.raises(AlreadyDecided, match="expired"):
        at.inbox.decide("loop", {waits: Approve()})
    assert at.status() == "needs_decision"
    assert at.drive().unwrap().text == "Both are paid."
    assert at.ran == []


@each_store
def test_two_people_who_decide_at_one_moment_are_both_heard(where: str, tmp_path: Path) -> None:
    """One call each: both count, and the loop is continued once. The same call: one of them learns of the other."""
    pairs: list[tuple[str, str]] = [("c1", "c2"), ("c1", "c1")]
    for decisions in pairs:
        at = desk(where, tmp_path / "-".join(decisions))
        (tmp_path / "-".join(decisions)).mkdir()
        at.drive()
        barrier, refused = threading.Barrier(2, timeout=60), list[DecisionConflict]()

        def decide(name: str, by: str, at: World = at, barrier: Any = barrier, refused: Any = refused) -> None:
            inbox = at.inbox
            barrier.wait()
            try:
                inbox.decide("loop", {name: Answer(by, by=by)})
            except DecisionConflict as error:
                refused.append(error)

        people = [threading.Thread(target=decide, args=each) for each in zip(decisions, ("ana", "bo"), strict=True)]
        for each in people:
            each.start()
        for each in people:
            each.join()
        if decisions[0] != decisions[1]:
            assert (refused, at.status(), at.journal().count("Continued")) == ([], "runnable", 1)
        else:
            ((told),) = refused
            (entry,) = at.inbox.trail("loop")
            assert (told.by, told.decision) == (entry.by, "answer")


def test_two_processes_decide_the_same_call(tmp_path: Path) -> None:
    """One wins; the other learns the winner's name."""
    at = desk("sqlite", tmp_path)
    at.drive()
    program = tmp_path / "decide.py"
    program.write_text(
        "import os, sys\n"
        "from toolloop import Inbox, SqliteStore, Answer\n"
        "from toolloop.errors import DecisionConflict\n"
        "path, by = sys.argv[1:]\n"
        "inbox = Inbox(SqliteStore(path))\n"
        "print('ready', flush=True)\n"
        "os.read(0, 1)\n"
        "try:\n"
        "    inbox.decide('loop', {'c1': Answer(by, by=by)})\n"
        "    print('decided')\n"
        "except DecisionConflict as error:\n"
        "    print(error.by)\n"
    )
    begins, begin = os.pipe()
    with ExitStack() as stack:
        programs = [
            stack.enter_context(Piped([str(program), str(tmp_path / "loops.db"), by], stdin=begins))
            for by in ("ana", "bo")
        ]
        os.close(begins)
        for each in programs:
            assert each.stdout.readline() == "ready\n"
        os.close(begin)
        said = [each.stdout.read().strip() for each in programs]
    (entry,) = at.inbox.trail("loop")
    assert sorted(said) == sorted(["decided", str(entry.by)])


# --- what else a person says ------------------------------------------------------------------------------------------


def test_a_person_stops_a_loop_wherever_it_is() -> None:
    """Calls that wait do not run. After the end it does nothing."""
    at = desk_of(MemoryStore())
    at.drive()
    at.inbox.stop("loop", "enough", by="ana")
    assert at.status() == "ended"
    rev = at.store.head("loop").rev
    at.inbox.stop("loop", "again", by="bo")
    assert at.store.head("loop").rev == rev
    assert at.inbox.show("loop")["termination"] == "stop_condition"
    assert [(entry.kind, entry.by, entry.reason) for entry in at.inbox.trail("loop")] == [("stop", "ana", "enough")]


def test_a_person_speaks_while_the_loop_goes_on_and_after_its_end() -> None:
    """An injection, or a further user turn."""
    at = desk_of(MemoryStore(), script=(reply("Hi."), reply("Sure."), reply("Bye.")))
    with at.open():
        pass  # it was created, and not driven
    assert at.status() == "runnable"
    at.inbox.say("loop", "And the rent", by="ana")
    at.drive()
    at.inbox.say("loop", ["Thanks", {"role": "user", "content": "Really"}], by="bo")
    assert at.status() == "runnable"
    assert at.drive().unwrap().text == "Sure."
    texts = [message["content"] for message in at.inbox.show("loop")["messages"] if message["role"] == "user"]
    assert texts == ["Pay the bills", "And the rent", "Thanks", "Really"]
    assert [(entry.kind, entry.by) for entry in at.inbox.trail("loop")] == [("say", "ana"), ("say", "bo")]


def test_what_a_person_says_while_a_call_waits_is_kept(tmp_path: Path) -> None:
    """It is shown and in the trail, with who said it and where; the decision that continues the loop sends it."""
    at = desk_of(SqliteStore(tmp_path / "loops.db"))
    at.drive()
    page = Inbox(at.store, clock=at.clock, via="page")
    said = page.say("loop", "Hurry", by="ana")
    gone = at.inbox.say("loop", ["One", "Two"], by="bo")
    kept = at.inbox.show("loop")["kept"]
    assert [(each["id"], each["by"], len(each["messages"])) for each in kept] == [(said, "ana", 1), (gone, "bo", 2)]
    assert {each["at"] for each in kept} == {datetime.fromtimestamp(at.now, UTC).isoformat()}
    page.withdraw("loop", gone, by="ana")
    assert [(entry.kind, entry.by, entry.via, entry.content) for entry in at.inbox.trail("loop")] == [
        ("say", "ana", "page", [{"role": "user", "content": "Hurry"}]),
        ("say", "bo", "inbox", [{"role": "user", "content": text} for text in ("One", "Two")]),
        ("withdraw", "ana", "page", [{"role": "user", "content": text} for text in ("One", "Two")]),
    ]
    assert (at.status(), len(at.inbox.pending())) == ("needs_decision", 2)
    at.inbox.decide("loop", {call: Approve(by="ana") for call in at.inbox.pending()})
    assert at.drive().unwrap().text == "Both are paid."
    shown = at.inbox.show("loop")
    assert (shown["kept"], shown["messages"][-2]) == ([], {"id": said, "role": "user", "content": "Hurry"})


def test_a_loop_that_waits_for_a_command_continues_with_what_is_said() -> None:
    """No other process would send it: a worker leaves such a loop to the caller that it was handed to."""
    at = desk_of(MemoryStore())
    with at.open() as handle:
        yielded = handle.next_turn()
        assert isinstance(yielded, Yielded)
        yielded.approve_all(by="ana")
        yielded.continue_loop()
        handle.next_turn()
        assert at.status() == "needs_command"
    at.inbox.say("loop", "Thanks")
    assert (at.status(), at.inbox.show("loop")["kept"]) == ("runnable", [])
    assert at.drive().unwrap().text == "Both are paid."


def test_a_person_has_a_failed_request_tried_again() -> None:
    """Whatever a worker gave up; where nothing failed, that is said."""
    at = desk_of(MemoryStore(), script=(ModelError("busy", retryable=True),))
    at.drive()
    at.inbox.retry("loop", by="ana")
    assert (at.status(), at.store.head("loop").head.attempts) == ("runnable", 0)
    with pytest.raises(IllegalCommand, match="retry"):
        at.inbox.retry("loop")
    assert [(entry.kind, entry.by) for entry in at.inbox.trail("loop")] == [("retry", "ana")]


# --- looking ----------------------------------------------------------------------------------------------------------


def test_a_loop_is_shown_whole() -> None:
    """Conversation, whole inputs, usage, limits, and what each call takes."""
    long = {"to": "x" * 5000, "euros": 1}
    at = desk_of(MemoryStore(), script=(reply("Let me see.", calls=[call("pay", long, id="c1")]),))
    at.drive(metadata={"owner": "ana"})
    shown = at.inbox.show("loop")
    assert [message["role"] for message in shown["messages"]] == ["user", "assistant"]
    (waits,) = shown["pending"]
    assert (waits["input"], waits["names"], waits["takes"]) == (long, ["pay"], ["approve", "deny", "answer"])
    assert (shown["status"], shown["text"], shown["metadata"]) == ("needs_decision", "Let me see.", {"owner": "ana"})
    assert shown["left"]["iterations"] == 9
    assert shown["created"] == datetime.fromtimestamp(at.now, UTC).isoformat()


class Watched(MemoryStore):
    """A store in which something happens after the next reading."""

    def __init__(self) -> None:
        super().__init__()
        self.then: Callable[[], object] | None = None

    def _read(self, found: Any) -> Any:
        happens, self.then = self.then, None
        if happens is not None:
            happens()
        return found

    def head(self, loop_id: str) -> Any:
        return self._read(super().head(loop_id))

    def load(self, loop_id: str, *, after: int = 0, first_id: str | None = None) -> Any:
        return self._read(super().load(loop_id, after=after, first_id=first_id))


def test_a_loop_is_shown_as_it_was_at_one_moment() -> None:
    """The status is that of the conversation, although a driver ends the loop between two readings."""
    at = desk_of(store := Watched())
    at.drive()
    at.inbox.decide("loop", {"c1": Deny("no"), "c2": Deny("no")})
    store.then = at.drive
    shown = at.inbox.show("loop")
    assert (shown["status"], shown["state"], shown["text"]) == ("ended", "Finished", "Both are paid.")
    assert shown == at.inbox.show("loop")


def test_the_trail_says_who_decided_what_when_and_why() -> None:
    """People and policies, with what was proposed and what was decided."""
    policy: dict[str, Any] = {"on_tool_call": lambda call, _view: Deny("never to bo") if call.id == "c2" else None}
    at = desk_of(MemoryStore(), config=policy)
    at.drive()
    at.inbox.decide("loop", {"c1": Approve(input={"to": "ana", "euros": 4}, by="ana", reason="four is enough")})
    by_policy, by_person = at.inbox.trail("loop")
    assert (by_policy.kind, by_policy.path, by_policy.reason, by_policy.by_policy) == (
        "deny",
        ("c2",),
        "never to bo",
        True,
    )
    assert (by_policy.name, by_policy.input) == ("pay", SEND["input"])
    assert (by_person.kind, by_person.by, by_person.reason) == ("approve", "ana", "four is enough")
    assert (by_person.input, by_person.content) == (PAY["input"], {"to": "ana", "euros": 4})
    assert by_person.at == datetime.fromtimestamp(at.now, UTC)


def test_history_is_a_deprecated_name_of_trail() -> None:
    """Both inboxes."""
    at = desk_of(MemoryStore())
    at.drive()
    at.inbox.stop("loop", by="ana")
    with pytest.warns(DeprecationWarning, match=r"Inbox\.history\(\) is now Inbox\.trail\(\)") as caught:
        assert at.inbox.history("loop") == at.inbox.trail("loop")
    assert caught[0].filename == __file__

    async def main() -> None:
        inbox = AsyncInbox(at.store, clock=at.clock)
        with pytest.warns(DeprecationWarning, match=r"AsyncInbox\.history\(\) is now AsyncInbox\.trail\(\)"):
            assert await inbox.history("loop") == await inbox.trail("loop")

    anyio.run(main)


def test_a_loop_that_is_not_there_is_named() -> None:
    """By each method; none creates it."""
    inbox = Inbox(MemoryStore())
    acts: list[Callable[[], object]] = [
        lambda: inbox.show("ghost"),
        lambda: inbox.trail("ghost"),
        lambda: inbox.decide("ghost", {"c1": Approve()}),
        lambda: inbox.stop("ghost"),
        lambda: inbox.say("ghost", "Hi"),
        lambda: inbox.retry("ghost"),
        lambda: inbox.link("ghost", "c1"),
    ]
    for act in acts:
        with pytest.raises(LoopNotFound, match="ghost"):
            act()


def test_the_async_inbox_does_the_same(tmp_path: Path) -> None:
    """With `await`; the store works in threads."""
    at = desk_of(SqliteStore(tmp_path / "loops.db"))
    at.drive()

    async def main() -> None:
        inbox = AsyncInbox(at.store, clock=at.clock)
        first, second = await inbox.pending()
        token = await inbox.link("loop", second)
        assert (await inbox.linked(token)).digest == second.digest
        await inbox.decide("loop", {first: Approve(by="ana")})
        await inbox.redeem(token, Deny("no", by="bo"))
        assert (await inbox.show("loop"))["status"] == "runnable"
        assert [entry.by for entry in await inbox.trail("loop")] == ["ana", "bo"]
        await inbox.say("loop", "Hurry", by="ana")
        await inbox.stop("loop", by="ana")
        with pytest.raises(IllegalCommand):
            await inbox.retry("loop")

    for backend in ("asyncio", "trio"):
        anyio.run(main, backend=backend)
        at.store.delete("loop")
        at.drive()


def test_an_inbox_imports_no_client_and_needs_no_extra_to_decide() -> None:
    """A page that only decides starts quickly."""
    code = "import sys; from toolloop import Inbox; print({'anthropic', 'itsdangerous'} & set(sys.modules) or '')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def test_external_and_uncertain_calls_wait_too() -> None:
    """Each says which decisions it takes."""
    at = desk_of(MemoryStore(), script=(reply(calls=[call("look_up", {"x": 1}, id="c1")]), reply("Done.")))
    definition = {"name": "look_up", "description": "Look up.", "input_schema": {"type": "object"}}
    at.drive(params={**PARAMS, "tools": [definition]}, config=LoopConfig())
    (waits,) = at.inbox.pending()
    assert (waits.why, waits.takes) == ("external", ("answer", "deny"))
    at.inbox.decide("loop", {waits: Answer("42")})
    assert at.status() == "runnable"


def test_a_late_decision_reports_the_expiry() -> None:
    """Also when the round of the call is closed, and only the trail knows it."""
    at = desk_of(MemoryStore(), config={"decision_timeout": 60.0})
    at.drive()
    at.now += 61
    at.drive()
    with pytest.raises(AlreadyDecided, match=r"'c1' expired at .* without a decision, and did not run") as caught:
        at.inbox.decide("loop", {"c1": Approve(by="ana")})
    assert (caught.value.decision, caught.value.by) == (None, None)
    assert [(each.kind, each.path) for each in at.inbox.trail("loop")] == [("expired", ("c1",)), ("expired", ("c2",))]
