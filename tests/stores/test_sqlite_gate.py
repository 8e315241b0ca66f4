"""A Ctrl-C in the gate of the SQLite stores, wherever it strikes, locks nobody out and holds up no fork."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from toolloop.stores.sqlite_connections import _Gate

PATIENCE = 30  # seconds; it is never reached but where something hangs

pytestmark = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals are sent to threads here")


@pytest.fixture(autouse=True)
def like_ctrl_c() -> Iterator[None]:
    """A signal of our own that does what Ctrl-C does, and where Python lets it."""
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    yield
    signal.signal(signal.SIGUSR1, before)


def strike(gate: _Gate) -> None:
    """Go in and out until a Ctrl-C strikes, be it in the gate or beside it."""
    main, begun = threading.get_ident(), threading.Event()

    def hit() -> None:
        begun.wait(PATIENCE)
        signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=hit)
    thread.start()
    try:
        begun.set()
        while True:
            with gate:
                pass
    except KeyboardInterrupt:
        pass
    thread.join(PATIENCE)


def passes(gate: _Gate) -> bool:
    """Whether another thread comes through."""
    through = threading.Event()

    def go() -> None:
        with gate:
            through.set()

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    return through.wait(PATIENCE)


def test_a_ctrl_c_in_the_gate() -> None:
    """Others come through after each, and whoever forks in the thread that was struck does not wait for itself."""
    gate = _Gate()
    for number in range(300):
        strike(gate)
        assert passes(gate), f"after {number + 1} strikes"
        gate.close()
        gate.open()


def test_a_fork_waits_for_others() -> None:
    """Until nobody else is inside."""
    gate, inside, go, closed = _Gate(), threading.Event(), threading.Event(), threading.Event()

    def stay() -> None:
        with gate:
            inside.set()
            go.wait(PATIENCE)

    def fork() -> None:
        gate.close()
        closed.set()
        gate.open()

    threads = [threading.Thread(target=work, daemon=True) for work in (stay, fork)]
    threads[0].start()
    assert inside.wait(PATIENCE)
    threads[1].start()
    assert not closed.wait(0.05)
    go.set()
    assert closed.wait(PATIENCE)
    for thread in threads:
        thread.join(PATIENCE)


def test_two_forks_at_once() -> None:
    """The second waits on while somebody is inside who came after the first, and is told when that one leaves."""
    gate, inside, go = _Gate(), threading.Event(), threading.Event()
    forked: list[str] = []

    def waiting() -> int:
        return len(gate._changed._waiters)  # type: ignore[attr-defined]

    def stay() -> None:
        with gate:
            inside.set()
            go.wait(PATIENCE)

    def fork() -> None:
        gate.close()
        forked.append(threading.current_thread().name)
        if len(forked) == 2:
            gate.open()
            return
        with gate:
            gate.open()
            wait_until(lambda: waiting() == 1)

    threads = [threading.Thread(target=work, daemon=True) for work in (stay, fork, fork)]
    threads[0].start()
    assert inside.wait(PATIENCE)
    for thread in threads[1:]:
        thread.start()
    wait_until(lambda: waiting() == 2)
    go.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(forked) == 2


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, "it never came to that"
