"""A driver that is killed with SIGKILL, wherever it stands: another process wakes the loop, and nothing is lost.

A file outside of the loop says what really ran. What the journal says at the death tells exactly what must come next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from tests.kit.effort import some
from tests.kit.fork_server import Child
from tests.promises.processes.counting import COUNTS
from tests.promises.processes.programs import CALLS, ONCE, ROUNDS, UNCERTAIN
from tests.promises.processes.shared_store import KINDS, SharedStore
from toolloop.machine import Finished
from toolloop.machine.record import journal_events as ev
from toolloop.machine.values.jsontext import decode
from toolloop.testing import FakeMessagesAPI, delayed

DEADLINE = 60.0


@frozen
class Death:
    """What the journal said when the driver was dead, and who it was."""

    loop_id: str
    pid: int
    events: list[Any]

    @property
    def started(self) -> set[str]:
        return {event.call_id for event in self.events if isinstance(event, ev.Started)}

    @property
    def ended(self) -> dict[str, ev.Ended]:
        return {event.call_id: event for event in self.events if isinstance(event, ev.Ended)}

    @property
    def lost(self) -> set[str]:
        """The calls that were started, and whose end is unknown."""
        return self.started - self.ended.keys()

    @property
    def decided(self) -> set[str]:
        return {call_id for event in self.events if isinstance(event, ev.Decided) for call_id, _ in event.decisions}

    @property
    def replies(self) -> int:
        return sum(isinstance(event, ev.Replied) for event in self.events)


def kill(shared: SharedStore, loop_id: str, driver: Child, number: int, **waker: Any) -> None:
    """Kill the driver where it stands, wake the loop in another process, and see that all is well."""
    unburied = number % 4 == 0  # a zombie is as dead as any
    (driver.kill_unburied if unburied else driver.kill)()
    death = Death(loop_id, driver.pid, shared.journal(loop_id))
    uncertain = list(UNCERTAIN)[number % 3]
    other = shared.start("drive", loop_id, kind=KINDS[(number // 3) % 3], uncertain=uncertain, **waker)
    end = other.end()
    if unburied:
        driver.bury()
    assert end["text"] == "done"
    _check_calls(shared, death, other.pid, end["asked"], uncertain)
    _check_results(shared, death)
    shared.assert_sound(loop_id)
    COUNTS["killed and woken"] += 1
    COUNTS["  of them with a call that was uncertain"] += bool(death.lost & set(ONCE))
    COUNTS["  of them with a call that was repeated"] += bool(death.lost - set(ONCE))


def _check_calls(shared: SharedStore, death: Death, waker: int, asked: list[list[str]], uncertain: str) -> None:
    keys = {(call_id, key) for _, _, call_id, key in shared.witnessed(death.loop_id, "ran")}
    assert len(keys) == len(dict(keys)), "a call has one key, however often it runs"
    before, after = shared.ran(death.loop_id, by=death.pid), shared.ran(death.loop_id, by=waker)
    assert set(before) <= death.started, "it ran, and its start was not stored"
    assert death.ended.keys() <= set(before)
    runs = {call_id: 1 for call_id in CALLS if call_id not in death.started or call_id in death.lost - set(ONCE)}
    if uncertain == "rerun":
        runs |= dict.fromkeys(death.lost & set(ONCE), 1)
    assert {call_id: after.count(call_id) for call_id in after} == runs
    wanted = [("send1", "approval")] if "send1" not in death.decided else []
    wanted += [(call_id, "uncertain") for call_id in ONCE if call_id in death.lost]
    assert [tuple(each) for each in asked] == wanted
    acknowledged = {
        call_id for line in shared.witnessed(death.loop_id, "decided", by=death.pid) for call_id in line[2:]
    }
    assert acknowledged <= death.decided, "it was decided, and the decision was not stored"


def _check_results(shared: SharedStore, death: Death) -> None:
    state = shared.state(death.loop_id)
    assert isinstance(state.root.phase, Finished)
    assert state.root.iterations == len(ROUNDS)
    blocks = [block for text in state.root.messages for block in decode(text)["content"] if type(block) is dict]
    results = {block["tool_use_id"]: block for block in blocks if block["type"] == "tool_result"}
    assert results.keys() == set(CALLS)
    for call_id, ended in death.ended.items():
        assert ended.result is not None
        assert results[call_id]["content"] == decode(ended.result.content), "a stored result was lost"


def in_window(shared: SharedStore, holds: Sequence[Mapping[str, Any]], window: str) -> None:
    """A driver for each of these places, killed just there."""
    for number, hold in enumerate(holds):
        loop_id = f"loop{number}"
        is_beside = number % 2 == 1
        driver = shared.start("drive", loop_id, kind=KINDS[number % 3], parallel=8 if is_beside else 1, hold=hold)
        if "end" in driver.hear("stands", *(["end"] if is_beside else [])):
            assert driver.wait() == 0  # ends of calls side by side may be stored together, in fewer writes
            continue
        kill(shared, loop_id, driver, number)
        COUNTS[f"  in the window: {window}"] += 1


def test_killed_in_a_tool(shared: SharedStore) -> None:
    """Between its start and its end: what may be repeated is, with the same key; what may not waits as uncertain."""
    places = [{"at": at, "call": call_id} for at in ("before", "after") for call_id in CALLS]
    in_window(shared, some(places * 7, 11), "between start and end of a tool")


def each_write(shared: SharedStore) -> Sequence[int]:
    """The numbers of the writes of a run, each for one that makes its calls one by one and one side by side.

    The first writes have two turns, as another waker meets them then.
    """
    writes = shared.start("drive", "counted", lease=3600.0).end()["writes"]  # no write of them renews the lease
    return some([turn % writes + 1 for turn in range(writes + 9) for _ in ("alone", "beside")], 7)


def test_killed_in_a_write(shared: SharedStore) -> None:
    """Between BEGIN and COMMIT: what was not committed was not stored, and nothing was done that it would allow."""
    in_window(shared, [{"at": "in a write", "number": at} for at in each_write(shared)], "in a write")


def test_killed_between_two_writes(shared: SharedStore) -> None:
    """What happened since the last write is not known to the journal, and what it says is still true."""
    in_window(shared, [{"at": "between writes", "number": at} for at in each_write(shared)], "between two writes")


def test_killed_in_a_request(shared: SharedStore) -> None:
    """While the API is at the answer: the request is made again, and no other that was answered."""
    held: list[Any] = []

    def script(request: Any) -> Any:
        number = sum(message["role"] == "assistant" for message in request["messages"])
        return held.pop()[1] if held and held[0][0] == number else ROUNDS[number]

    with FakeMessagesAPI(script) as api:
        for number, asked in enumerate(some([*range(len(ROUNDS))] * 16, 13)):
            loop_id, before = f"loop{number}", len(api.requests)
            answer = delayed(DEADLINE, ROUNDS[asked])
            held.append((asked, answer))
            driver = shared.start("drive", loop_id, kind=KINDS[number % 3], url=api.url)
            assert answer.arrived.wait(DEADLINE)
            kill(shared, loop_id, driver, number, url=api.url)
            answer.release()
            assert len(api.requests) - before == len(ROUNDS) + 1
            COUNTS["  in the window: in a request"] += 1
        assert api.refused == []
