"""The store in PostgreSQL: what it keeps, what it costs, and what it makes of a server and a network that fail."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from tests.kit.effort import examples
from tests.kit.postgres import database, needs_postgres
from tests.kit.proxy import Proxy, start_proxy
from tests.stores.rules.test_stores_agree import Stores, few, metadata, statuses
from tests.stores.support import HUMAN, READY, entries
from toolloop.errors import StoreError, UnreadableSnapshot
from toolloop.stores import Head, Lease, PostgresStore, Store
from toolloop.testing import check_store

pytestmark = needs_postgres
RUNNING = Head("running")
PASSWORD = "s3cret"
PATIENCE = 60.0


@pytest.fixture(scope="module")
def shared_url() -> str:
    return database()


def run_sql(url: str, *statements: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        return [connection.execute(each.encode()).statusmessage for each in statements]


def name_of(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


@pytest.fixture
def url(shared_url: str) -> str:
    """A database without tables. It is the same one for all tests: creating one takes longer than all they do."""
    run_sql(shared_url, "DROP SCHEMA IF EXISTS toolloop CASCADE")
    return shared_url


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    with PostgresStore(url) as opened:
        yield opened


@pytest.fixture
def network(url: str) -> Iterator[tuple[Proxy, str]]:
    with PostgresStore(url) as store:
        store.migrate()
    with start_proxy(url) as through:
        yield through


def test_it_keeps_the_rules_of_a_store(url: str, store: PostgresStore) -> None:
    """The same as one in a file. Damage is found that a person does with the `psql` shell."""

    def damage() -> None:
        run_sql(url, "UPDATE toolloop.events SET body = body || ' ' WHERE seq = 2")

    check_store(lambda: store, damage=damage)


class PostgresAndMemory(Stores):
    """Does everything twice: in memory, and in a database."""

    url = ""

    def __init__(self) -> None:
        run_sql(self.url, "DROP SCHEMA IF EXISTS toolloop CASCADE")
        super().__init__()

    def open(self) -> Any:
        return PostgresStore(self.url)

    @rule(status=statuses, metadata=metadata, limit=few, row=st.none() | few)
    def list(self, status: Any, metadata: dict[str, str] | None, limit: int, row: int | None) -> None:
        """Cursors are not the same in both: PostgreSQL leaves out numbers."""

        def before(store: Store) -> str | None:
            return next((each.cursor for at, each in enumerate(store.list()) if at == row), None)

        self.both(lambda store: store.list(status, metadata=metadata, limit=limit, before=before(store)))


def test_it_agrees_with_the_store_in_memory(url: str) -> None:
    """Whatever is done, to the last word of each error."""
    PostgresAndMemory.url = url
    run_state_machine_as_test(PostgresAndMemory, settings=examples(5, stateful_step_count=20, deadline=None))


# --- the database -----------------------------------------------------------------------------------------------------


def test_bad_arguments_are_refused_by_name() -> None:
    """At the construction, without the password."""
    good = "postgresql://ana@host/db"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"url": ""}, "url is empty"),
        ({"url": b"x"}, "url is a bytes"),
        ({"url": f"postgresql://ana:{PASSWORD}@[host/db"}, "url is not a PostgreSQL URL"),
        ({"url": good, "pool_size": 0}, "pool_size is 0"),
        ({"url": good, "timeout": 1}, "timeout is 1"),
        ({"url": good, "lock_timeout": 0}, "lock_timeout is 0"),
        ({"url": good, "lease_seconds": 5}, "lease_seconds is 5"),
    ]
    for arguments, says in cases:
        with pytest.raises((TypeError, ValueError), match=says) as error:
            PostgresStore(**arguments)
        assert PASSWORD not in "".join(traceback.format_exception(error.value))


def test_neither_its_repr_nor_an_error_shows_the_password(network: tuple[Proxy, str]) -> None:
    proxy, url = network
    with PostgresStore(url) as store:
        assert repr(store) == f"PostgresStore(host=127.0.0.1 port={proxy.port} dbname={name_of(url)} user=owner)"
        proxy.close()
        with pytest.raises(StoreError, match="cannot be reached") as error:
            store.list()
    assert PASSWORD in url
    assert PASSWORD not in "".join(traceback.format_exception(error.value))


def test_a_role_with_rights_on_the_tables_alone_can_do_everything(url: str, store: PostgresStore) -> None:
    """But it cannot create the tables: then the error says what to do."""
    name = "dml_only"
    run_sql(url, f"DROP ROLE IF EXISTS {name}", f"CREATE ROLE {name} LOGIN")
    with PostgresStore(url.replace("owner:", f"{name}:")) as used:
        with pytest.raises(StoreError, match="lacks a privilege: see `toolloop migrate --help`"):
            used.list()
        assert not used.is_migrated()
        store.migrate()
        with pytest.raises(StoreError, match="lacks a privilege"):
            used.list()
        run_sql(
            url,
            f"GRANT USAGE ON SCHEMA toolloop TO {name}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA toolloop TO {name}",
            f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA toolloop TO {name}",
        )
        assert used.is_migrated()
        check_store_once(used)
    run_sql(url, "DROP SCHEMA toolloop CASCADE", f"DROP ROLE {name}")


def check_store_once(store: PostgresStore) -> None:
    """Call every method that writes."""
    store.create("loop", entries("a"), head=HUMAN, metadata={"owner": "ana"})
    lease = store.acquire("loop", "me", until=store.now() + 60)
    assert store.append("loop", entries("b"), expected_rev=1, head=READY, lease=lease) == 2
    store.release(store.renew(lease, until=store.now() + 90))
    assert store.secret() == store.secret()
    store.delete("loop")


def test_the_tables_are_created_once_by_the_first_process(url: str) -> None:
    """Eight at the same time, as when a service starts."""
    stores = [PostgresStore(url) for _ in range(8)]
    failed: list[Exception] = []

    def use(store: PostgresStore) -> None:
        try:
            store.migrate()
        except Exception as error:  # noqa: BLE001 - it is what is looked for
            failed.append(error)

    threads = [threading.Thread(target=use, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert failed == []
    for store in stores:
        assert store.is_migrated()
        store.close()


def test_a_foreign_schema_and_a_newer_format_are_left_as_they_are(url: str) -> None:
    for comment in ("NULL", "'toolloop store, format 2'"):
        run_sql(
            url,
            "DROP SCHEMA IF EXISTS toolloop CASCADE",
            "CREATE SCHEMA toolloop",
            "CREATE TABLE toolloop.loops ()",
            f"COMMENT ON TABLE toolloop.loops IS {comment}",
        )
        with PostgresStore(url) as store, pytest.raises(UnreadableSnapshot, match="Nothing was changed"):
            store.list()


def test_the_isolation_of_a_session_does_not_depend_on_the_database(url: str) -> None:
    """For durability, see `test_poolers`."""
    run_sql(url, f"ALTER DATABASE {name_of(url)} SET default_transaction_isolation = serializable")
    with PostgresStore(url) as store:
        store.migrate()
        asked = "SELECT current_setting('default_transaction_isolation')"
        assert store._db.run(lambda db: db.execute(asked.encode()).fetchone()) == ("read committed",)
    run_sql(url, f"ALTER DATABASE {name_of(url)} RESET ALL")


def test_it_counts_by_the_clock_of_the_database(store: PostgresStore) -> None:
    before = time.time()
    assert before - 1 <= store.now() <= time.time() + 1


# --- connections ------------------------------------------------------------------------------------------------------


def connections_of(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        asked = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'toolloop'"
        )
        return int((connection.execute(asked.encode()).fetchone() or (0,))[0])


def wait_until_there_are(count: int, url: str) -> None:
    """A session ends soon after its client has left."""
    until = time.monotonic() + PATIENCE
    while connections_of(url) != count and time.monotonic() < until:
        pass
    assert connections_of(url) == count


def test_a_closed_store_has_no_connections_and_opens_again(url: str, store: PostgresStore) -> None:
    store.create("loop", entries("a"), head=READY)
    store.close()
    wait_until_there_are(0, url)
    assert store.load("loop").rev == 1


def test_a_store_that_is_closed_while_a_call_uses_it_has_no_connections_after_that(
    url: str, store: PostgresStore
) -> None:
    store.migrate()
    used, go_on = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        used.set()
        assert go_on.wait(PATIENCE)

    thread = threading.Thread(target=store._db.run, args=(hold,))
    thread.start()
    assert used.wait(PATIENCE)
    store.close()
    go_on.set()
    thread.join(PATIENCE)
    wait_until_there_are(0, url)


def test_threads_share_a_limited_number_of_connections(url: str) -> None:
    """A call that gets none in time says so."""
    with PostgresStore(url, pool_size=2, timeout=2) as store:
        store.create("loop", entries("a"), head=READY)
        threads = [threading.Thread(target=store.load, args=("loop",)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert connections_of(url) <= 2
        with psycopg.connect(url) as other:
            other.execute("LOCK TABLE toolloop.loops")
            blocked = [threading.Thread(target=expect_refusal, args=(store.list,)) for _ in range(2)]
            for thread in blocked:
                thread.start()
            with pytest.raises(StoreError, match=r"did not finish|stayed in use|answer was lost"):
                store.list()
            for thread in blocked:
                thread.join(PATIENCE)


def test_a_ctrl_c_while_it_waits_for_a_connection_loses_none(url: str) -> None:
    """At the moment at which it gets the one that another thread returns."""
    taken, pause = threading.Event(), threading.Event()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with PostgresStore(url, pool_size=1, timeout=3) as store:
        store.migrate()

        def hold(_: object) -> None:
            taken.set()
            pause.wait(0.1)

        def use() -> None:
            store._db.run(hold)
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

        before = signal.signal(signal.SIGUSR1, interrupt)
        try:
            thread = threading.Thread(target=use)
            thread.start()
            assert taken.wait(PATIENCE)
            with pytest.raises(KeyboardInterrupt):
                store.list()
        finally:
            signal.signal(signal.SIGUSR1, before)
        thread.join(PATIENCE)
        assert store.list() == []


def expect_refusal(act: Callable[[], object]) -> None:
    with pytest.raises(StoreError):
        act()


def test_a_loop_that_is_locked_for_long_is_an_error_and_the_next_call_goes_on(url: str, store: PostgresStore) -> None:
    store.create("loop", entries("a"), head=READY)
    with PostgresStore(url, lock_timeout=0.05) as hasty:
        with psycopg.connect(url) as other:
            other.execute("SELECT FROM toolloop.loops FOR UPDATE")
            with pytest.raises(StoreError, match="the loop stayed locked"):
                hasty.append("loop", entries("b"), expected_rev=1)
        with psycopg.connect(url) as other:
            other.execute("LOCK TABLE toolloop.loops")
            with pytest.raises(StoreError, match=r"a table, as by ALTER TABLE.* stayed locked .*: try again"):
                hasty.append("loop", entries("b"), expected_rev=1)
            with pytest.raises(StoreError, match="a table"):
                hasty.list()
        assert hasty.append("loop", entries("b"), expected_rev=1) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_child_of_a_fork_opens_connections_of_its_own(url: str, store: PostgresStore) -> None:
    """And it closes none of its parent's."""
    store.create("loop", entries("a"), head=READY)
    before = connections_of(url)
    child = os.fork()
    if not child:
        try:
            rev = store.append("loop", entries("b"), expected_rev=1)
            store.close()
            os._exit(0 if rev == 2 else 1)
        except BaseException:  # noqa: BLE001 - the exit code says it
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    wait_until_there_are(before, url)
    assert store.append("loop", entries("c"), expected_rev=2) == 3
    assert connections_of(url) == before


def test_connections_that_the_server_closed_are_replaced(url: str, store: PostgresStore) -> None:
    """Also for a call that must not be repeated: nothing is sent on a dead connection."""
    store.migrate()
    ours = "pg_stat_activity WHERE application_name = 'toolloop' AND datname = current_database()"
    run_sql(url, f"SELECT pg_terminate_backend(pid) FROM {ours}")
    wait_until_there_are(0, url)
    store.create("loop", entries("a"), head=READY)
    assert store.load("loop").rev == 1


# --- the network ------------------------------------------------------------------------------------------------------


def test_an_append_and_a_load_take_one_round_trip(network: tuple[Proxy, str]) -> None:
    """Also with a lease, a head and several events."""
    proxy, url = network
    with PostgresStore(url) as store:
        revs = [store.create("loop", entries("a"), head=READY)]
        lease = store.acquire("loop", "me", until=1.0)
        acts: tuple[Callable[[], object], ...] = (
            lambda: revs.append(
                store.append("loop", entries("b", "c"), expected_rev=revs[-1], head=RUNNING, lease=lease)
            ),
            lambda: store.append("loop", entries("d"), expected_rev=revs[-1], head=READY, first_id="a"),
            lambda: store.load("loop", first_id="a"),
            lambda: store.renew(lease, until=2.0),
            lambda: store.release(lease),
        )
        for act in acts:
            before = proxy.requests
            act()
            assert proxy.requests == before + 1


LEASE = Lease("loop", "me", 1, 1.0)
REPEATED: dict[str, Callable[[PostgresStore], object]] = {
    "append": lambda store: store.append("loop", entries("b"), expected_rev=1, head=RUNNING, lease=LEASE),
    "load": lambda store: store.load("loop").rev,
    "renew": lambda store: store.renew(LEASE, until=2.0).until,
    "release": lambda store: store.release(LEASE),
    "head": lambda store: store.head("loop").rev,
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_call_whose_answer_is_lost_is_repeated_once_on_a_new_connection(
    network: tuple[Proxy, str], name: str
) -> None:
    """What it stored the first time is found out by the ids; and the second time it is an error."""
    proxy, url = network
    with PostgresStore(url) as store:
        store.create("loop", entries("a"), head=READY)
        store.acquire("loop", "me", until=1.0)
        first = proxy.pieces + 1
        proxy.judge = lambda piece: "cut" if piece == first else "pass"
        expected = {"append": 2, "load": 1, "renew": 2.0, "release": None, "head": 1}
        assert REPEATED[name](store) == expected[name]
        assert [entry.id for entry in store.load("loop").entries] == ["a", "b"][: 2 if name == "append" else 1]
        proxy.judge = lambda _: "cut"
        with pytest.raises(StoreError, match="answer was lost"):
            REPEATED[name](store)
        proxy.judge = lambda _: "pass"
        assert store.head("loop").rev == (2 if name == "append" else 1)


def test_a_network_that_forwards_nothing_holds_no_call_up_for_longer_than_the_timeout(
    network: tuple[Proxy, str],
) -> None:
    """In the middle of an append, which was stored: its ids say so once the network works again."""
    proxy, url = network
    with PostgresStore(url, timeout=2) as store:
        store.create("loop", entries("a"), head=READY)
        proxy.judge = lambda _: "mute"
        begun = time.monotonic()
        with pytest.raises(StoreError, match="no answer in time"):
            store.append("loop", entries("b"), expected_rev=1)
        assert time.monotonic() - begun < 3  # a busy machine takes its time to notice
        proxy.judge = lambda _: "pass"
        assert store.append("loop", entries("b"), expected_rev=1) == 2
        assert [entry.id for entry in store.load("loop").entries] == ["a", "b"]


# --- what it tells ----------------------------------------------------------------------------------------------------


def test_it_tells_of_what_others_do(url: str, store: PostgresStore) -> None:
    """And again after its connection was lost. It tells of nothing while a driver works."""
    told = threading.Semaphore(0)
    with PostgresStore(url) as other, store.watch(told.release):
        assert told.acquire(timeout=PATIENCE)  # from now on it listens
        other.create("loop", entries("a"), head=READY)
        assert told.acquire(timeout=PATIENCE)
        lease = other.acquire("loop", "me", until=1e10)
        other.append("loop", entries("b"), expected_rev=1, head=RUNNING, lease=lease)
        listening = "pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"
        run_sql(url, f"SELECT pg_terminate_backend(pid) FROM {listening}")
        assert told.acquire(timeout=PATIENCE)  # it listens again
        other.append("loop", entries("c"), expected_rev=2, head=HUMAN)
        assert told.acquire(timeout=PATIENCE)
        assert not told.acquire(blocking=False)


def test_a_function_that_fails_keeps_no_other_from_being_notified(
    url: str, store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    """They share a thread and a connection."""
    told = threading.Semaphore(0)

    def fail() -> None:
        raise ValueError("mine")

    with store.watch(fail), store.watch(told.release), PostgresStore(url) as other:
        for loop_id in ("first", "second"):
            while told.acquire(blocking=False):
                pass
            other.create(loop_id, entries(loop_id), head=READY)
            assert told.acquire(timeout=PATIENCE)
    assert "a function that watches for changes failed" in caplog.text
