"""A PostgreSQL behind a pooler: one in session mode makes no difference, one in transaction mode is noticed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.kit.pooler import needs_pooler, start_pooler
from tests.kit.postgres import database, needs_postgres
from tests.stores.postgres.test_postgres import PATIENCE, name_of, run_sql
from tests.stores.support import HUMAN, READY, entries
from toolloop.errors import StoreError
from toolloop.stores import PostgresStore
from toolloop.testing import check_store

pytestmark = [needs_postgres, needs_pooler]
_KEEP_MODE = """
    CREATE TABLE modes (of text, mode text);
    CREATE FUNCTION keep_mode() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.modes VALUES (TG_TABLE_NAME, current_setting('synchronous_commit')); RETURN NULL;
    END $$
"""
_ON_COMMIT = """CREATE CONSTRAINT TRIGGER keep_mode AFTER INSERT OR UPDATE OR DELETE ON toolloop.{}
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION keep_mode()"""


@pytest.fixture(scope="module")
def url() -> str:
    return database()


@pytest.fixture(scope="module")
def shared(url: str) -> Iterator[str]:
    with start_pooler(url, "transaction") as through:
        yield through


def test_a_pooler_in_session_mode_makes_no_difference() -> None:
    with start_pooler(database(), "session") as through, PostgresStore(through, pool_size=2) as store:
        changes = threading.Semaphore(0)
        with store.watch(changes.release):
            assert changes.acquire(timeout=PATIENCE)  # it hears its own first notification
            store.create("loop", entries("a"), head=READY)
            assert changes.acquire(timeout=PATIENCE)
    with start_pooler(database(), "session") as through, PostgresStore(through, pool_size=1) as store:
        check_store(lambda: store)


def test_a_session_of_another_client_changes_nothing_and_is_an_error(url: str, shared: str) -> None:
    """Six threads share three sessions: each call either does what it says, or raises and leaves all as it was."""
    done: list[str] = []

    def work(store: PostgresStore, number: int) -> str:
        for turn in range(40):
            try:
                store.create(loop_id := f"{number}-{turn}", entries("a"), head=READY)
                done.append(loop_id)
                store.append(loop_id, entries("b"), expected_rev=1, head=HUMAN)
                done.append(loop_id)
            except StoreError as error:
                return str(error)
        return ""

    with PostgresStore(shared) as store, ThreadPoolExecutor() as threads:
        barrier = threading.Barrier(6)
        said = list(threads.map(lambda number: (barrier.wait(), work(store, number))[1], range(6)))
    assert sum("connect directly, or through a pooler in session mode" in each for each in said) >= 5
    with PostgresStore(url) as direct:
        revs = {loop.loop_id: int(loop.rev) for loop in direct.list(limit=1000)}
        assert revs == {loop_id: done.count(loop_id) for loop_id in done}
        for loop_id in revs:
            direct.load(loop_id)  # no journal is damaged


def test_no_secret_is_stored_in_a_session_of_another_client() -> None:
    url = database()
    with PostgresStore(url, pool_size=1) as store:
        store._db.run(lambda db: setattr(db, "mark", "another"))
        with pytest.raises(StoreError, match="Nothing was changed"):
            store.secret()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM toolloop.secrets").fetchone() == (0,)


class _Waited(logging.Handler):
    """Tells a waiting test that a message was logged."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.count = 0
        self.seen = threading.Event()
        self._text = text

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self.count += 1
            self.seen.set()


def test_notifications_that_do_not_arrive_are_logged_once(shared: str) -> None:
    handler, logger = _Waited("no notifications"), logging.getLogger("toolloop")
    logger.addHandler(handler)
    try:
        with PostgresStore(shared) as store, store.watch(lambda: None):
            assert handler.seen.wait(PATIENCE)
    finally:
        logger.removeHandler(handler)
    assert handler.count == 1


def test_what_is_stored_is_on_disk_whatever_the_session_is_set_to() -> None:
    """Each transaction sets this for itself: a pooler may give it a session that nothing was set for."""
    url = database()
    run_sql(url, f"ALTER DATABASE {name_of(url)} SET synchronous_commit = off")
    with PostgresStore(url) as store:
        store.migrate()
        run_sql(url, _KEEP_MODE, *[_ON_COMMIT.format(table) for table in ("loops", "events", "secrets")])
        store.secret()
        store.create("loop", entries("a"), head=READY)
        store.append("loop", entries("b"), expected_rev=1)
        store.delete("loop")
    with psycopg.connect(url) as connection:
        modes = connection.execute("SELECT of, mode FROM modes").fetchall()
    assert {table for table, _ in modes} == {"loops", "events", "secrets"}
    assert {mode for _, mode in modes} == {"on"}
