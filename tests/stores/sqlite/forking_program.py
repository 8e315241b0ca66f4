"""A program that forks while it uses a store. It tells what happened as lines. Arguments: which way, and the file."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
import warnings
from collections.abc import Callable

from tests.stores.worker import lock
from toolloop.stores import Entry, Head, MemoryStore, SqliteStore
from toolloop.stores.sqlite.file import _CONNECTIONS

READY = Head("runnable")


def tell(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def run_in_a_child(act: Callable[[], object]) -> None:
    """Do it in a child, and wait for that."""
    child = os.fork()
    if not child:
        act()
        os._exit(0)
    tell("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def connections(path: str) -> None:
    """The child opens its own; and it keeps its locks, and so the log, when the parent closes."""
    store = SqliteStore(path)
    store.create("loop", [], head=READY)
    goes_on, done = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        tell("the child begins with", _CONNECTIONS)
        store.append("loop", [Entry("child", "")], expected_rev=0)
        os.write(done[1], b".")
        os.read(goes_on[0], 1)
        tell("the child's log is there:", os.path.exists(f"{path}-wal"))  # noqa: PTH110 - as short as may be
        store.append("loop", [Entry("child again", "")], expected_rev=1)
        os._exit(0)
    os.read(done[0], 1)
    tell("the parent sees", int(store.load("loop").rev))
    store.close()
    other = SqliteStore(path)
    other.load("loop")
    other.close()
    os.write(goes_on[1], b".")
    tell("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    tell("the parent sees", [entry.id for entry in store.load("loop").entries])


def transaction(path: str) -> None:
    """A fork waits for the transaction of another thread, and the child sees it done."""
    store = SqliteStore(path)
    store.create("loop", [], head=READY)
    began, forking = threading.Event(), threading.Event()
    order: list[str] = []

    def change(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE loops SET status = 'written'")
        began.set()
        forking.wait()
        order.append("written")

    # The hooks before a fork run in the reverse order of their making: this one before the store's.
    os.register_at_fork(before=forking.set)
    thread = threading.Thread(target=store._file.write, args=(change,))
    thread.start()
    began.wait()
    run_in_a_child(lambda: tell(order, [loop.status for loop in store.list()]))
    thread.join()


def memory(_path: str) -> None:
    """The child has a copy, whatever other threads are at."""
    store = MemoryStore()
    store.create("loop", [], head=READY)
    stop = threading.Event()

    def append() -> None:
        while not stop.is_set():
            store.append("loop", [Entry(str(int(store.load("loop").rev)), "")], expected_rev=None)

    threads = [threading.Thread(target=append) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        child = os.fork()
        if not child:
            rev = store.load("loop").rev
            os._exit(0 if store.append("loop", [Entry("child", "")], expected_rev=rev) == rev + 1 else 1)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            tell("a child failed")
    stop.set()
    for thread in threads:
        thread.join()
    tell("the parent has the children's:", "child" in [entry.id for entry in store.load("loop").entries])


def owner(_path: str) -> None:
    """A child is another process than its parent, and says so."""
    from toolloop.stores.process import find_standing, name_this_process  # noqa: PLC0415 - only here

    mine = name_this_process()
    run_in_a_child(lambda: tell(name_this_process() != mine, find_standing(mine), find_standing(name_this_process())))
    tell(name_this_process() == mine)


def locked(path: str) -> None:
    """A fork does not wait for another process that holds the lock of the file, though a thread does."""
    begin, held, goes_on = os.pipe(), os.pipe(), os.pipe()
    other = os.fork()
    if not other:
        os.read(begin[0], 1)
        connection = lock(path)
        os.write(held[1], b".")
        os.read(goes_on[0], 1)
        connection.close()
        os._exit(0)
    store = SqliteStore(path, busy_timeout=60)
    store.create("loop", [], head=READY)
    os.write(begin[1], b".")
    os.read(held[0], 1)
    thread = threading.Thread(target=store.append, args=("loop", [Entry("a", "")]), kwargs={"expected_rev": 0})
    thread.start()
    began = time.monotonic()
    for _ in range(20):
        run_in_a_child(lambda: store.load("loop"))
    tell("fast:", time.monotonic() - began < 30)
    os.write(goes_on[1], b".")
    thread.join()
    os.waitpid(other, 0)
    tell("the parent sees", int(store.load("loop").rev))


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of a fork beside threads, which is what is tried here
    {each.__name__: each for each in (connections, transaction, memory, owner, locked)}[sys.argv[1]](sys.argv[2])
