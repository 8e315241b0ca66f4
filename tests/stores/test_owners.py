"""Whether the owner of a lease is still there is said only where it is certain."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.stores.support import READY
from toolloop.errors import Conflict
from toolloop.stores import MemoryStore
from toolloop.stores.process import describe_owner, find_standing, name_this_process

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells when a process began")
TELL = (
    "import sys; from toolloop.stores.process import name_this_process; print(name_this_process(), flush=True); "
    "sys.stdin.read()"
)


@contextmanager
def start_another() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process, and what it calls itself."""
    with subprocess.Popen([sys.executable, "-c", TELL], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().rstrip("\n")
        process.kill()


def change(**parts: Any) -> str:
    return json.dumps(json.loads(name_this_process()) | parts)


@LINUX
def test_a_process_is_alive_while_it_runs() -> None:
    """Itself, and another one; when that one is gone, it is gone."""
    assert find_standing(name_this_process()) == "alive"
    with start_another() as (process, name):
        assert find_standing(name) == "alive"
        process.kill()
        process.wait()
        assert find_standing(name) == "gone"


@LINUX
def test_a_process_that_ended_is_gone_before_its_parent_looks() -> None:
    """No process has to clear it away first: its number is still taken, and it runs no more."""
    with start_another() as (process, name):
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert find_standing(name) == "gone"


@LINUX
def test_a_number_that_is_used_again_is_another_process() -> None:
    """It began at another time."""
    assert find_standing(change(start=json.loads(name_this_process())["start"] - 1)) == "gone"


def test_what_is_not_certain_is_unknown() -> None:
    """A process of another machine, boot or container, and one that does not say all of that."""
    cases: list[dict[str, Any]] = [
        *({"host": "elsewhere"}, {"boot": "another"}, {"boot": None}, {"pids": "pid:[1]"}, {"start": None}),
        *({"pid": None}, {"pid": "1"}, {"pid": True}, {"pid": 0}, {"pid": -1}, {"pid": 1.0}),
    ]
    for parts in cases:
        assert find_standing(change(**parts)) == "unknown"


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_other_name_is_unknown(name: str) -> None:
    """And is described by itself."""
    assert find_standing(name) == "unknown"
    assert describe_owner(name) == name


def test_words_after_the_name_are_ignored() -> None:
    """So a driver can say which of a process's drivers it is."""
    assert find_standing(f"{name_this_process()} driver 7") == find_standing(name_this_process())
    host = json.loads(name_this_process())["host"]
    assert describe_owner(f"{name_this_process()} driver 7") == f"process {os.getpid()} on {host}"


def test_a_number_that_no_process_can_have_is_not_alive() -> None:
    """However great it is."""
    assert {find_standing(change(pid=2**22 + 1)), find_standing(change(pid=2**70))} <= {"gone", "unknown"}


@pytest.mark.parametrize(
    ("until", "shown"), [(1.0, "1970-01-01T00:00:01+00:00"), (1e15, "1000000000000000 seconds since")]
)
def test_who_asks_for_a_leased_loop_learns_who_has_it_and_until_when(until: float, shown: str) -> None:
    """The time also if no calendar has it."""
    store = MemoryStore()
    store.create("loop", [], head=READY)
    store.acquire("loop", "ana", until=until)
    with pytest.raises(Conflict, match=f"'loop' is leased to ana until {re.escape(shown)}"):
        store.acquire("loop", "bo", until=2.0)
