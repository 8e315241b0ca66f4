"""Loops that DBOS dispatches: starts, decisions, deadlines, and what a sweep finds."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from dbos import DBOS, DBOSConfig
from sqlalchemy import NullPool, create_engine, make_url, text

from tests.dbos.support import DEADLINE, SWEEP, Gate, Site, params, site_at, until
from tests.kit.postgres import database, needs_postgres
from tests.kit.proxy import start_proxy
from tests.stores.support import READY, entries
from toolloop import Approve, Inbox, LoopConfig, MemoryStore, SqliteStore
from toolloop.dbos import DurableLoops
from toolloop.dbos.settings import settings_of
from toolloop.dbos.stretches import Stretches
from toolloop.errors import AlreadyDecided, LoopNotFound
from toolloop.inbox import InboxCall
from toolloop.stores import PostgresStore, Store
from toolloop.testing import ScriptedProvider


def stretch(stretch_id: str, **more: Any) -> Any:
    """The options of an enqueued stretch."""
    return {"queue_name": "toolloop", "workflow_name": "toolloop.stretch", "workflow_id": stretch_id, **more}


def set_pending(site: Site, pattern: str) -> None:
    """Let stretches look as if an executor had begun them."""
    url = site.url.replace("postgresql:", "postgresql+psycopg:")
    with create_engine(url, poolclass=NullPool).begin() as connection:
        schema = "main" if connection.dialect.name == "sqlite" else "dbos"
        update = f"UPDATE {schema}.workflow_status SET status = 'PENDING' WHERE workflow_uuid LIKE :pattern"
        connection.execute(text(update), {"pattern": pattern})


class CountedStore:
    """A store that counts the calls of its methods."""

    def __init__(self, store: SqliteStore | PostgresStore) -> None:
        self.calls: Counter[str] = Counter()
        self._store = store

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self._store, name)


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=[needs_postgres, pytest.mark.deep])])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Loops are driven here."""
    with site_at(request.param, tmp_path_factory.mktemp("dbos")) as site:
        site.drivers().launch()
        yield site


def test_a_person_is_notified_and_reminded_by_the_sweeps(site: Site) -> None:
    """Until the call is decided; by processes that drive only."""
    told: list[InboxCall] = []
    client, first = site.client(), site.drivers(notify=told.append)
    then = site.drivers(notify=told.append, remind_after=(0.0,))
    client.start("told", params("Pay"))
    client.result("told", DEADLINE)

    for sweeping in (first, then, then):
        sweeping.sweep()
    reminders = [each.reminder for each in told if each.loop_id == "told"]
    assert reminders == [0, 1]
    client.decide("told", {"c1": Approve(by="ana")})
    assert client.result("told", DEADLINE)["status"] == "ended"
    with pytest.raises(ValueError, match="notify needs a provider"):
        DurableLoops(site.store, dbos=site.settings(), notify=print)


def test_a_loop_is_driven_until_a_person_is_needed_and_after_the_decision(site: Site) -> None:
    """By a client that has neither provider nor tools. Each stretch is a workflow of its own."""
    client = site.client()
    client.start("one", params("Pay"), {"owner": "ana"})
    assert site.stretches("one").keys() == {"1"}  # at once, and not at the next sweep
    waits = client.result("one", DEADLINE)
    assert (waits["status"], [call["id"] for call in waits["pending"]]) == ("needs_decision", ["c1"])
    rev = site.store.head("one").rev
    client.decide("one", {"c1": Approve(by="ana")})
    assert site.stretches("one").keys() == {"1", str(int(rev) + 2)}
    ended = client.result("one", DEADLINE)
    assert (ended["status"], ended["text"]) == ("ended", "Paid.")
    assert (site.ran["one"], site.store.head("one").metadata) == (1, {"owner": "ana"})
    until(lambda: list(site.stretches("one").values()) == ["SUCCESS"] * 2)
    with pytest.raises(AlreadyDecided):
        client.decide("one", {"c1": Approve(by="ben")})


def test_what_a_person_says_is_driven(site: Site) -> None:
    """While a call waits it is kept for the decision; after the end it begins a turn, and the same key none."""
    client = site.client()
    client.start("said", params("Pay"))
    client.result("said", DEADLINE)
    kept = client.say("said", "Quickly", by="ana", key="1")
    assert [each["id"] for each in client.result("said", DEADLINE)["kept"]] == [kept]
    client.decide("said", {"c1": Approve(by="ana")})
    assert client.result("said", DEADLINE)["status"] == "ended"
    client.say("said", "And now?", by="ana", key="2")
    ended = client.result("said", DEADLINE)
    assert (ended["status"], ended["iterations"], ended["kept"]) == ("ended", 3, [])
    stretches = site.stretches("said")
    assert client.say("said", "Quickly", by="ana", key="1") == kept
    assert site.stretches("said").keys() == stretches.keys()


def test_a_second_start_changes_nothing(site: Site) -> None:
    """At any time: an id of your own makes a start that is repeated harmless."""
    client = site.client()
    client.start("again", params("Pay"))
    client.start("again", params("Pay"))
    client.result("again", DEADLINE)
    before = site.store.head("again")
    client.start("again", params("Pay"))
    assert site.store.head("again") == before
    client.decide("again", {"c1": Approve()})
    client.result("again", DEADLINE)
    client.start("again", params("Pay"))
    until(lambda: set(site.stretches("again").values()) == {"SUCCESS"})
    assert (len(site.stretches("again")), site.ran["again"]) == (2, 1)


def test_a_sweep_enqueues_what_was_lost(site: Site) -> None:
    """The store has the truth, whatever became of a stretch: to stop a loop, stop it there.

    A decision that is made in the store alone counts. A stretch of another version, which DBOS would leave alone after
    a deploy, is taken over. One that has ended or was cancelled is put back if its loop is due.
    """
    client, old, dbos = site.client(), site.client(application_version="toolloop-0"), site.dbos()
    client.start("inbox", params("Pay"))
    old.start("old", params("Hello"))
    dbos.enqueue(stretch("used/1"), "used")
    old.start("cancelled", params("Hello"))
    dbos.cancel_workflow(site.first_stretch("cancelled"))
    client.result("inbox", DEADLINE)
    Inbox(site.store).decide("inbox", {"c1": Approve(by="ana")})
    until(lambda: site.stretches("used") == {"1": "SUCCESS"})  # there is no such loop yet
    client.start("used", params("Hello"))
    for loop_id in ("inbox", "old", "used", "cancelled"):
        assert client.result(loop_id, DEADLINE)["status"] == "ended"
    assert dbos.retrieve_workflow(site.first_stretch("old")).get_status().app_version == "toolloop-1"


def test_a_stretch_is_lost_if_two_sweeps_in_a_row_find_it_so(site: Site) -> None:
    """At a single look, its process may be about to take the loop, or to note its end."""
    sweeping, other = site.client(queue={"name": "other"}), stretch("begun/1", queue_name="other")
    site.dbos().enqueue(other, "begun")
    set_pending(site, "begun/1")
    assert ["begun/1" in sweeping.sweep() for _ in range(3)] == [False, True, False]
    assert site.stretches("begun") == {"1": "ENQUEUED"}
    site.dbos().cancel_workflow("begun/1")


def test_a_sweep_asks_the_store_for_all_stretches_at_once(site: Site) -> None:
    """However many of them run."""
    counted = CountedStore(site.store)
    sweeping = DurableLoops(cast("Store", counted), dbos=site.settings(), queue={"name": "other"})
    for number in range(9):
        site.dbos().enqueue(stretch(f"many{number}/1", queue_name="other"), f"many{number}")
    set_pending(site, "many%")
    assert len(sweeping.sweep()) == 0
    assert counted.calls["head"] == 0
    assert counted.calls["list"] == 1
    assert len(sweeping.sweep()) == 9
    for number in range(9):
        site.dbos().cancel_workflow(f"many{number}/1")
    sweeping.close()


def test_only_the_latest_version_takes_stretches_of_others(site: Site) -> None:
    """In a deploy, processes of both versions sweep. The one that drives here is of the latest version."""
    old, new = (
        site.client(queue={"name": "other"}, application_version=version) for version in ("toolloop-0", "toolloop-1")
    )
    for version in ("toolloop-0", "toolloop-1"):
        site.dbos().enqueue(stretch(f"{version}/1", queue_name="other", app_version=version), version)
    assert [old.sweep() for _ in range(3)] == [[], [], []]
    assert [new.sweep() for _ in range(3)] == [[], ["toolloop-0/1"], []]
    for version in ("toolloop-0", "toolloop-1"):
        assert site.dbos().retrieve_workflow(f"{version}/1").get_status().app_version == "toolloop-1"
        site.dbos().cancel_workflow(f"{version}/1")


@pytest.mark.deep
def test_sweeps_enqueue_any_number_of_loops(site: Site) -> None:
    """A part each: PostgreSQL refuses a query with more than 65,535 values."""
    if isinstance(site.store, SqliteStore):
        pytest.skip("a file takes more")
    url = database()
    with PostgresStore(url, timeout=DEADLINE) as store, psycopg.connect(url) as connection:  # 66,000 rows take seconds
        store.create("loop", entries("a"), head=READY)
        columns = "rev, status, pending, retryable, attempts, changed, notified, created, metadata"
        connection.execute(
            f"INSERT INTO toolloop.loops (loop_id, {columns}) "
            f"SELECT 'loop' || n, {columns} FROM toolloop.loops, generate_series(1, 66000) n".encode()
        )
        connection.commit()
        sweeping = DurableLoops(store, dbos=site.settings(), queue={"name": "elsewhere"})
        swept = [*sweeping.sweep(), *sweeping.sweep()]
        sweeping.close()
    assert len(swept) == len(set(swept)) == 2000


def test_a_deadline_is_a_delayed_stretch(site: Site) -> None:
    """It only looks: the call expires, and the loop goes on."""
    client = site.client(config=LoopConfig(decision_timeout=0.6))
    client.start("expires", params("Pay"))
    client.result("expires", DEADLINE)
    until(lambda: "DELAYED" in site.stretches("expires").values())
    until(lambda: site.store.head("expires").status == "ended")
    assert site.ran["expires"] == 0


def test_a_retry_is_a_delayed_stretch(site: Site) -> None:
    """`retry_at` is what the store says."""
    site.client().start("fails", params("Fail"))
    until(lambda: "DELAYED" in site.stretches("fails").values())
    (delayed,) = site.dbos().list_workflows(workflow_id_prefix="fails/", status="DELAYED")
    retry_at = site.store.head("fails").due_at
    assert retry_at is not None
    assert delayed.delay_until_epoch_ms == pytest.approx(retry_at * 1000, abs=5000)
    with pytest.raises(TimeoutError, match=r"'fails' is still in progress after 0\.05 seconds: it is failed"):
        site.client().result("fails", 0.05)
    site.store.delete("fails")


def test_a_stretch_waits_while_another_driver_has_the_loop(site: Site) -> None:
    """It sleeps and tries again, and a sweep leaves a driver that lives alone."""
    gate = site.on["busy"] = Gate()
    client = site.client()
    client.start("busy", params("Look"))
    gate.wait()
    dbos = site.dbos()
    dbos.enqueue(stretch("busy/99"), "busy")
    until(lambda: any(step["function_name"] == "DBOS.sleep" for step in dbos.list_workflow_steps("busy/99")))
    until(lambda: site.stretches("busy") == {"1": "PENDING", "99": "PENDING"})
    begun = dbos.retrieve_workflow(site.first_stretch("busy")).get_status().dequeued_at
    assert begun is not None
    until(lambda: time.time() - begun / 1000 > 2 + 3 * SWEEP)  # DBOS notes whole seconds; sweeps would have put it back
    assert dbos.retrieve_workflow(site.first_stretch("busy")).get_status().dequeued_at == begun
    gate.open()
    assert client.result("busy", DEADLINE)["status"] == "ended"
    until(lambda: set(site.stretches("busy").values()) == {"SUCCESS"})
    assert site.ran["busy"] == 1


def test_a_loop_that_was_deleted_ends_its_stretch(site: Site) -> None:
    """There is nothing to drive."""
    client = site.client(config=LoopConfig(decision_timeout=0.5))
    client.start("deleted", params("Pay"))
    client.result("deleted", DEADLINE)
    site.store.delete("deleted")
    until(lambda: set(site.stretches("deleted").values()) == {"SUCCESS"})
    with pytest.raises(LoopNotFound):
        client.result("deleted")


def test_the_options_of_the_queue_and_of_the_system_database_are_set(site: Site) -> None:
    """Inputs are portable JSON; a file of SQLite has a write-ahead log."""
    queue = DBOS.retrieve_queue("toolloop")
    assert queue is not None
    assert (queue.worker_concurrency, queue.polling_interval_sec) == (4, 0.05)
    site.client().start("shown", params("Hello"))
    url = site.url.replace("postgresql:", "postgresql+psycopg:")
    with create_engine(url, poolclass=NullPool).connect() as connection:
        is_sqlite = connection.dialect.name == "sqlite"
        schema = "main" if is_sqlite else "dbos"
        query = text(f"SELECT serialization FROM {schema}.workflow_status WHERE workflow_uuid LIKE 'shown/1-%'")
        assert connection.execute(query).scalar() == "portable_json"
        assert not is_sqlite or connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"


def test_so_many_loops_are_driven_at_a_time(site: Site) -> None:
    """The queue has a `worker_concurrency` of 4."""
    gates = {f"many{number}": Gate() for number in range(5)}
    site.on |= gates
    client = site.client()
    for loop_id in gates:
        client.start(loop_id, params("Look"))
    until(lambda: sum(gate.arrived.is_set() for gate in gates.values()) == 4)
    wanted = ["ENQUEUED", *["PENDING"] * 4]  # DBOS may write what it took after it began
    until(lambda: sorted(each for loop_id in gates for each in site.stretches(loop_id).values()) == wanted)
    for gate in gates.values():
        gate.open()
    for loop_id in gates:
        assert client.result(loop_id, DEADLINE)["status"] == "ended"


def test_one_process_launches_once(site: Site) -> None:
    """DBOS is one for the process."""
    with pytest.raises(RuntimeError, match="already drives other loops"):
        site.drivers().launch()
    with pytest.raises(RuntimeError, match="this client cannot drive"):
        site.client().launch()


POSTGRES = "postgresql://ana:s3cret@nowhere/dbos"
NAMED = {"name": "toolloop-tests"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"system_database_url": POSTGRES}, "dbos has no 'name'"),
        (NAMED, "dbos has no 'system_database_url'"),
        ({**NAMED, "system_database_url": "sqlite://"}, "is in memory"),
        ({**NAMED, "system_database_url": POSTGRES}, "which other machines cannot read: give a PostgresStore"),
    ],
)
@pytest.mark.parametrize("kind", [SqliteStore, MemoryStore])
def test_parts_that_do_not_fit_are_refused(config: Any, message: str, kind: Any, tmp_path: Path) -> None:
    """Before anything is created."""
    store = kind(tmp_path / "loops.db") if kind is SqliteStore else kind()
    with pytest.raises(ValueError, match=message):
        DurableLoops(store, dbos=config)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_every_process_has_is_refused_on_postgres() -> None:
    """DBOS would recover what another process runs. Clients do not drive, so they need no name."""
    store, config = PostgresStore(POSTGRES), cast("DBOSConfig", {**NAMED, "system_database_url": POSTGRES})
    with pytest.raises(ValueError, match="executor_id is 'local'"):
        DurableLoops(store, ScriptedProvider(()), dbos=config)
    DurableLoops(store, dbos=config).close()
    DurableLoops(store, ScriptedProvider(()), dbos={**config, "executor_id": "a"}).close()


def test_a_wrong_provider_or_tool_is_refused(tmp_path: Path) -> None:
    """As by a worker."""
    site = site_at("sqlite", tmp_path)
    with pytest.raises(TypeError, match="provider: expected a client of the anthropic SDK"):
        DurableLoops(site.store, cast("Any", 42), dbos=site.settings())
    with pytest.raises(TypeError, match="tools: expected a list of tools or a ToolRegistry, got an int"):
        DurableLoops(site.store, tools=cast("Any", 42), dbos=site.settings())


def test_options_of_partitions_are_refused(tmp_path: Path) -> None:
    """The loops of a queue are not in partitions."""
    site = site_at("sqlite", tmp_path)
    with pytest.raises(ValueError, match="queue has partition_concurrency"):
        DurableLoops(site.store, dbos=site.settings(), queue={"partition_concurrency": 1})
    with pytest.raises(ValueError, match="sweep_every"):
        DurableLoops(site.store, ScriptedProvider(()), dbos=site.settings(), sweep_every=0.0)


def test_a_network_that_forwards_nothing_has_limits_which_the_url_may_change() -> None:
    """Else libpq and the system wait for hours."""
    config = cast("DBOSConfig", {**NAMED, "system_database_url": f"{POSTGRES}?connect_timeout=3&host=db1&host=db2"})
    url = make_url(settings_of(config, PostgresStore(POSTGRES), drives=False)["system_database_url"] or "")
    assert (url.query["connect_timeout"], url.query["host"]) == ("3", ("db1", "db2"))
    assert {"keepalives_idle", "tcp_user_timeout"} <= url.query.keys()
    assert url.password == "s3cret"


@pytest.mark.deep
@needs_postgres
def test_a_start_survives_a_dbos_that_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The caller goes on after a while."""
    with start_proxy(database()) as (proxy, url), site_at("postgres", Path()) as site:
        proxy.judge = lambda _: "mute"
        site.url = f"{url}&connect_timeout=600"  # so that libpq does not give up first
        begun = time.monotonic()
        site.client().start("one", params("Hello"))
        assert time.monotonic() - begun < DEADLINE
        assert "a sweep will retry: TimeoutError: the system database of DBOS did not answer" in caplog.text
        assert site.store.head("one").status == "runnable"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the open files of this process are not listed here")
def test_a_client_without_an_answer_closes_its_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a timeout another client is used, and the connections of the first one do not stay open."""
    path = tmp_path / "dbos.db"
    config = cast("DBOSConfig", {"name": "toolloop-tests", "system_database_url": f"sqlite:///{path}"})
    stretches = Stretches(settings_of(config, MemoryStore(), drives=False), "toolloop", time.time)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE held (id)")
        other.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr("toolloop.dbos.stretches._LIMIT", 0.2)
        with pytest.raises(TimeoutError, match="did not answer"):
            stretches.is_latest()
    until(lambda: not any(thread.name == "dbos-client-of-toolloop" for thread in threading.enumerate()))
    open_files = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
    assert os.fspath(path) not in open_files


def test_a_start_survives_a_dbos_that_cannot_be_reached(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The loop is in the store, where a sweep finds it."""
    with site_at("sqlite", tmp_path) as site:
        site.client().start("one", params("Hello"))
        assert "DBOS failed; a sweep will retry" in caplog.text
        assert site.store.head("one").status == "runnable"
        assert time.time() - site.store.head("one").created < DEADLINE
