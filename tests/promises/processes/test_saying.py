"""Processes that say something at one moment: to each other, to a driver, and to one that withdraws."""

from __future__ import annotations

from typing import Any

from tests.kit.effort import IS_DEEP
from tests.kit.fork_server import Child
from tests.promises.processes.counting import COUNTS
from tests.promises.processes.programs import PARAMS, TOOLS, Worker, model
from tests.promises.processes.shared_store import SharedStore
from toolloop import Inbox, LoopContext, ToolLoopHandle
from toolloop.history import check

ROUNDS = 50 if IS_DEEP else 5
HOOK = ["hook", "hook"]


def at_once(*asked: tuple[Child, dict[str, Any]]) -> list[dict[str, Any]]:
    """Let each process do what it is asked in one moment, and return what each of them says of it."""
    for child, words in asked:
        child.line.say(**words)
    for child, _ in asked:
        child.hear("ready")
    for child, _ in asked:
        child.go()
    return [child.hear("said", "withdrawn", "text") for child, _ in asked]


def wait_for_a_call(shared: SharedStore, loop_id: str) -> None:
    """Bring a loop to where calls wait."""
    part = Worker(None, str(shared.folder / loop_id))
    parts: dict[str, Any] = {"tools": TOOLS, "params": PARAMS, "context": LoopContext(state=part)}
    with ToolLoopHandle.open(shared.store, loop_id, model(part, "sync", None), **parts) as handle:
        assert handle.run().pending


def test_all_that_processes_say_at_one_moment_is_said_once(shared: SharedStore) -> None:
    """Whether it is kept, goes out just now, or begins a turn; a shared key says it once, and each order stays."""
    parts = {"path": shared.place, "folder": str(shared.folder)}
    ann, ben, driver = (shared.fork_server.start("converse", **parts) for _ in range(3))
    for number in range(ROUNDS):
        loop_id = f"loop{number}"
        wait_for_a_call(shared, loop_id)
        says = [[[f"{who} {at}", f"{who} {at}"] for at in range(3)] for who in ("ann", "ben")]
        first: dict[str, Any] = {"act": "say", "loop_id": loop_id}
        told = at_once((ann, {**first, "says": [*says[0], HOOK]}), (ben, {**first, "says": [HOOK, *says[1]]}))
        assert told[0]["said"][3] == told[1]["said"][0]
        kept = Inbox(shared.store).show(loop_id)["kept"]
        texts = [one["messages"][0]["content"] for one in kept]
        assert sorted(texts) == sorted(["hook", *(text for each in says for text, _ in each)])

        gone = told[0]["said"][1]
        more = [[f"ann {at}", f"ann {at}"] for at in (3, 4)]
        _, came, _ = at_once(
            (ann, {**first, "says": more}),
            (ben, {"act": "withdraw", "loop_id": loop_id, "said": gone, "later": 8 * (number % 5)}),
            (driver, {"act": "finish", "loop_id": loop_id}),
        )
        COUNTS[f"a withdrawal during a turn {'came in time' if came['withdrawn'] else 'came too late'}"] += 1
        view = Inbox(shared.store).show(loop_id)
        messages: list[Any] = [*view["messages"], *(message for one in view["kept"] for message in one["messages"])]
        there = [each["content"] for each in messages if each["role"] == "user" and isinstance(each["content"], str)][
            1:
        ]
        expected = [*texts, *(text for text, _ in more)]
        assert there == [text for text in expected if not (came["withdrawn"] and text == "ann 1")]
        told = [{"role": each["role"], "content": each["content"]} for each in view["messages"]]
        assert not [problem for problem in check(told) if problem.level == "error"]
        for who in ("ann", "ben"):
            own = [text for text in there if text.startswith(who)]
            assert own == sorted(own)
        shared.assert_sound(loop_id)
