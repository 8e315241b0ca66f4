"""Stores of the version before: rows without `named` and `notified_rev`, and processes that go on beside newer ones."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, strategies as st

from tests.kit.earlier_source import write_earlier_source
from tests.kit.effort import examples
from tests.kit.postgres import database, in_postgres, needs_postgres
from tests.stores.support import READY, contents, entries
from tests.stores.worker import Worker
from toolloop.errors import StaleRevision, StoreError, UnreadableSnapshot
from toolloop.stores import Head, PendingCall, SqliteStore, Store

ROOT = Path(__file__).parents[2]
BEFORE = "87e0fbe"  # the last commit whose rows have no `named`
WITHOUT_DIGESTS = "97397d3"  # the last commit whose revisions are numbers
CALL = PendingCall(("c1",), ("pay",), "approval", ("approve",), "12ab", named={"edited": "judged"})
WAITING = Head("needs_decision", pending=(CALL,), attempts=0, notified={})
STRIPPED = evolve(WAITING, pending=(evolve(CALL, named={}),))


def run_sql(where: Path | str, *statements: str) -> list[Any]:
    """Run statements in the file or at the URL, and return the rows of the last one."""
    if isinstance(where, Path):
        with closing(sqlite3.connect(where, isolation_level=None)) as shell:
            return [shell.execute(each).fetchall() for each in statements][-1]
    import psycopg  # noqa: PLC0415 - not every test has it

    with psycopg.connect(where, autocommit=True) as connection:
        done = [connection.execute(each.encode()) for each in statements]
        return done[-1].fetchall() if done[-1].description else []


def loops_in(where: Path | str) -> str:
    return "loops" if isinstance(where, Path) else "toolloop.loops"


def place(kind: str, folder: Path) -> Path | str:
    return folder / "loops.db" if kind == "sqlite" else database()


def store_in(where: Path | str) -> Any:
    if isinstance(where, Path):
        return SqliteStore(where)
    from toolloop.stores import PostgresStore  # noqa: PLC0415 - likewise

    return PostgresStore(where)


def make_old(where: Path | str) -> None:
    """Turn a store into one of the version before, which lacks the last columns, their indexes, and checkpoints."""
    room, last = ("", "loops_unnotified") if isinstance(where, Path) else ("toolloop.", "loops_waiting")
    run_sql(where, *(f"DROP INDEX {room}{name}" for name in ("loops_by_due", last)))
    lacking = ("named", "notified_rev", "progress_token", "progress")
    run_sql(where, *(f"ALTER TABLE {loops_in(where)} DROP COLUMN {name}" for name in lacking))
    run_sql(where, f"DROP TABLE {room}checkpoints")
    if isinstance(where, Path):
        run_sql(where, "DROP TRIGGER loops_without_checkpoints")
    else:
        run_sql(where, *(f"ALTER TABLE toolloop.{table} DROP COLUMN chain" for table in ("loops", "events")))


each_kind = pytest.mark.parametrize("kind", ["sqlite", in_postgres])

texts = st.text(max_size=3)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
calls = st.builds(
    PendingCall,
    st.just(("p", "c")),
    st.just(("ask", "pay")),
    st.just("approval"),
    st.just(("approve", "deny")),
    texts,
    st.none() | texts,
    st.none() | st.just(1.5),
    truncated=st.booleans(),
    preview=st.none() | texts,
    named=st.dictionaries(texts, values, max_size=3),
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path_factory.mktemp("shared") / "loops.db") as store:
        store.create("loop", [], head=READY)
        yield store


@examples(100)
@given(st.lists(calls, max_size=3, unique_by=lambda call: call.digest).map(tuple))
def test_an_earlier_version_reads_the_calls_of_any_row(shared: SqliteStore, pending: tuple[PendingCall, ...]) -> None:
    """It takes ten values for each call, in their order, and gets all but `named`; this version gets that, too."""
    shared.append("loop", [], expected_rev=0, head=Head("needs_decision", pending=pending))
    assert shared.head("loop").pending == pending
    ((text,),) = run_sql(Path(shared._file.path), "SELECT pending FROM loops")
    lists = json.loads(text)
    assert [len(each) for each in lists] == [10] * len(pending)
    read = [PendingCall(tuple(a), tuple(b), why, tuple(c), *more) for a, b, why, c, *more in lists]
    assert read == [evolve(call, named={}) for call in pending]


@each_kind
def test_what_is_named_belongs_to_its_call_alone(kind: str, tmp_path: Path) -> None:
    """An earlier version writes other calls, or none, and leaves `named` as it is; an unknown name is kept."""
    where = place(kind, tmp_path)
    with store_in(where) as store:
        named = {"edited": "judged", "of a newer version": [1]}
        store.create("loop", [], head=evolve(WAITING, pending=(evolve(CALL, named=named),)))
        assert store.head("loop").pending[0].named == named
        other = '[[["c2"],["pay"],"approval",["approve"],"34cd",null,null,"{}",false,null]]'
        cases: list[tuple[str, list[Any]]] = [(other, [{}]), ("[]", [])]
        for pending, expected in cases:
            run_sql(where, f"UPDATE {loops_in(where)} SET pending = '{pending}'")
            assert [call.named for call in store.head("loop").pending] == expected
            assert [call.named for call in store.list()[0].pending] == expected
            read = store.head("loop").head
            assert store.append("loop", [], expected_rev=0, head=evolve(read, changed=2.0), instead_of=read) == 0
        assert run_sql(where, f"SELECT named FROM {loops_in(where)}") == [(None,)]


@each_kind
def test_an_earlier_version_may_drive_a_loop_after_this_one(kind: str, tmp_path: Path) -> None:
    """It leaves the progress as it is when it returns or takes a lease, and that is not shown for its own lease."""
    where = place(kind, tmp_path)
    with store_in(where) as store:
        store.create("loop", [], head=READY)
        store.keep_progress(store.acquire("loop", "me", until=1.0), "1")
        assert store.progress("loop") == "1"
        of_old = "lease_owner = 'old', lease_token = 99, lease_until = 2"
        for lease in ("lease_owner = NULL, lease_token = NULL, lease_until = NULL", of_old):
            run_sql(where, f"UPDATE {loops_in(where)} SET {lease}")
            assert store.progress("loop") is None
        assert run_sql(where, f"SELECT progress FROM {loops_in(where)}") == [("1",)]


@each_kind
def test_a_store_of_an_earlier_version_gets_the_column(kind: str, tmp_path: Path) -> None:
    """Once, by whichever process opens it first; nothing else changes."""
    where = place(kind, tmp_path)
    with store_in(where) as store:
        store.create("loop", entries("a"), head=WAITING)
        before = contents(store)
    make_old(where)
    stores = [store_in(where) for _ in range(4)]
    found, together = list[Any](), Barrier(4)

    def look(store: Store) -> None:
        together.wait(60)
        found.append(contents(store))

    threads = [Thread(target=look, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    expected = [(evolve(row, head=STRIPPED), journal) for row, journal in before]
    assert found == [expected] * 4
    stores[0].append("loop", [], expected_rev=1, head=WAITING)
    assert contents(stores[1]) == before
    assert stores[2].list_due(1.0) == ([], None)
    stores[2].mark_notified(stores[2].list_unnotified())
    assert stores[3].list_unnotified() == []
    run_sql(where, f"UPDATE {loops_in(where)} SET rev = 2, status = 'runnable'")  # as an earlier version appends
    assert [row.loop_id for row in stores[3].list_due(1.0)[0]] == ["loop"]
    assert [row.loop_id for row in stores[3].list_unnotified()] == ["loop"]
    for each in stores:
        each.close()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("is_open", [False, True])
def test_a_file_of_an_earlier_version_is_read_without_write_permission(open_folder: Path, is_open: bool) -> None:
    """Also while a process of that version has it open; the file does not change."""
    path = open_folder / "loops.db"
    with SqliteStore(path) as store:
        store.create("loop", entries("a"), head=WAITING)
    make_old(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as shell:
        if is_open:
            shell.execute("UPDATE loops SET changed = 1.5")
        for file in open_folder.iterdir():
            file.chmod(0o644)
        before = {file: file.read_bytes() for file in open_folder.iterdir()}
        with Worker(path, "--as-nobody") as worker:
            changed = 1.5 if is_open else 0.0
            assert worker.ask("[(row.loop_id, row.head.changed) for row in store.list('needs_decision')]") == repr(
                [("loop", changed)]
            )
            assert worker.ask("store.head('loop').pending[0].named") == "{}"
            assert worker.ask("store.load('loop').rev") == "1"
            assert worker.ask("store.progress('loop')") == "None"
            assert worker.ask("store.checkpoint('loop', meaning=1)") == "None"
        assert {file: file.read_bytes() for file in open_folder.iterdir() if file in before} == before


@needs_postgres
def test_a_role_that_may_not_add_the_column_learns_who_can() -> None:
    """Then `toolloop migrate` with the owner's role adds it. The role's rights cover columns, and not a new table."""
    from toolloop.stores import PostgresStore  # noqa: PLC0415 - likewise

    url, name = database(), "dml_on_old_tables"
    with PostgresStore(url) as owner:
        owner.create("loop", entries("a"), head=WAITING)
        make_old(url)
        run_sql(
            url,
            f"CREATE ROLE {name} LOGIN",
            f"GRANT USAGE ON SCHEMA toolloop TO {name}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA toolloop TO {name}",
        )
        with PostgresStore(url.replace("owner:", f"{name}:")) as used:
            assert not used.is_migrated()
            with pytest.raises(StoreError, match=r"lacks named, .* `toolloop migrate URL` as the role that owns"):
                used.list()
        with PostgresStore(url) as other:
            other.migrate()
        with PostgresStore(url.replace("owner:", f"{name}:")) as used:
            assert used.is_migrated()
            assert used.head("loop").head == STRIPPED
            assert used.append("loop", [], expected_rev=1, head=WAITING) == 1
            assert used.head("loop").head == WAITING
            with pytest.raises(StoreError, match="this role lacks a privilege"):
                used.checkpoint("loop", meaning=1)
    run_sql(url, "DROP SCHEMA toolloop CASCADE", f"DROP ROLE {name}")


# --- with the real code of that version -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the code of the version before."""
    return extract(BEFORE, tmp_path_factory.mktemp("before"))


def extract(commit: str, folder: Path) -> Path:
    """Extract the code of a commit, and return its folder."""
    if (source := write_earlier_source(commit, folder)) is None:
        pytest.skip("this is not a clone with the history of the version before")
    return source


@contextmanager
def process(source: Path, where: Path | str) -> Iterator[Callable[[str], Any]]:
    """A process with this code that has the store open. It evaluates a line, and answers with JSON."""
    program = [sys.executable, str(Path(__file__).with_name("version_program.py")), str(where)]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(source)}
    ) as started:
        reader, writer = started.stdout, started.stdin
        assert reader is not None
        assert writer is not None

        def ask(line: str) -> Any:
            print(line, file=writer, flush=True)
            return json.loads(reader.readline())

        assert ask("version()") == str(source)
        yield ask
        writer.close()


@pytest.mark.deep
@each_kind
def test_processes_of_both_versions_share_a_store(kind: str, tmp_path: Path, source: Path) -> None:
    """The older one lists all loops, and drives its own until something newer is in them. It refuses the others."""
    where = place(kind, tmp_path)
    with process(source, where) as old, process(ROOT / "src", where) as new:
        assert old("drive('first', None)") == "decision_required"
        assert new("rows()") == [["first", "needs_decision", [["c1", {}]]]]
        assert new("drive('second', {'need': 2})") == "decision_required"
        assert new("drive('third', None)") == "decision_required"
        new("decide('second', 'ana')")
        ((_, _, [[_, named]]),) = [row for row in new("rows()") if row[0] == "second"]
        assert ([each["by"] for each in named["approvals"]], named["demands"][0]["missing"]) == (["ana"], 1)
        waiting = [[name, "needs_decision", ["c1"]] for name in ("third", "second", "first")]
        assert old("old_rows()") == waiting
        old("decide('first', 'bo')")
        assert old("drive('first', None)") == "end"
        assert old("drive('fourth', None)") == "decision_required"
        assert old("decide('second', 'bo')") == "UnreadableSnapshot"
        new("decide('fourth', 'cy')")
        assert old("drive('fourth', None)") == "UnreadableSnapshot"  # a decision of this version says `via`
        assert new("drive('fourth', None)") == "end"
        new("decide('second', 'bo')")
        assert new("drive('second', {'need': 2})") == "end"
        new("say('third', 'hurry')")
        assert [old(f"{what}('third', {more})") for what, more in (("drive", "None"), ("decide", "'bo'"))] == [
            "UnreadableSnapshot"
        ] * 2  # what this version opens says how members of toolsets are named
        assert [row[1] for row in old("old_rows()")] == ["ended", "needs_decision", "ended", "ended"]


# --- before revisions had digests -------------------------------------------------------------------------------------


@needs_postgres
def test_appends_without_a_chain_are_chained_when_they_are_read() -> None:
    """As an earlier version makes them: this one goes on behind them, and still tells two histories apart."""
    from toolloop.stores import PostgresStore  # noqa: PLC0415 - likewise

    url = database()
    with PostgresStore(url) as store:
        known = store.append("loop", entries("b"), expected_rev=store.create("loop", entries("a"), head=READY))

        def append_without_chain(name: str, seq: int) -> None:
            body = entries(name)[0].body
            digest = f"sha256(convert_to(concat_ws(E'\\n', 'loop', {seq}, '{name}', '{body}'), 'UTF8'))"
            run_sql(
                url,
                f"UPDATE toolloop.loops SET rev = {seq}",
                "INSERT INTO toolloop.events (number, seq, id, digest, body) "
                f"SELECT number, {seq}, '{name}', {digest}, '{body}' FROM toolloop.loops",
            )

        for seq, name in enumerate("cd", 3):
            append_without_chain(name, seq)
        rev = store.load("loop").rev
        assert [each.id for each in store.load("loop", after=known).entries] == ["c", "d"]
        assert store.head("loop").rev == rev == store.load("loop", after=rev).rev
        assert store.list()[0].rev.digest is None  # type: ignore[attr-defined]  # a revision
        assert store.acquire("loop", "me", until=1.0).rev == rev
        run_sql(url, "DELETE FROM toolloop.events WHERE seq = 4")
        append_without_chain("e", 4)
        with pytest.raises(StaleRevision):
            store.append("loop", entries("f"), expected_rev=rev)
        with pytest.raises(StaleRevision, match="does not contain revision"):
            store.load("loop", after=rev)
        last = store.append("loop", entries("f"), expected_rev=store.head("loop").rev)
        assert store.load("loop").rev == store.list()[0].rev == last
        assert [each.id for each in store.load("loop", after=3).entries] == ["e", "f"]


@needs_postgres
def test_a_lost_end_of_a_journal_is_noticed_in_postgres() -> None:
    """Though the number of the revision fits, as in the store in a file; and so is a chain of another event."""
    from toolloop.stores import PostgresStore  # noqa: PLC0415 - likewise

    url = database()
    with PostgresStore(url) as store:
        store.create("loop", entries(*"abc"), head=READY)
        run_sql(url, "CREATE TABLE kept AS SELECT * FROM toolloop.events")
        for harm in (
            "DELETE FROM toolloop.events WHERE seq = 3; UPDATE toolloop.loops SET rev = 2",
            "UPDATE toolloop.events SET chain = sha256('x') WHERE seq = 2",
            "UPDATE toolloop.loops SET chain = '3-0011223344556677'",
        ):
            run_sql(url, harm)
            for after in (0, 1):
                with pytest.raises(UnreadableSnapshot, match=r"event \d of loop 'loop' is not the one"):
                    store.load("loop", after=after)
            run_sql(
                url,
                "DELETE FROM toolloop.events; INSERT INTO toolloop.events SELECT * FROM kept; UPDATE toolloop.loops "
                "SET rev = 3, chain = '3-' || encode((SELECT chain FROM kept WHERE seq = 3), 'hex')",
            )
        assert store.load("loop").rev == 3


@pytest.fixture(scope="module")
def source_without_digests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the code of the version before revisions had digests."""
    return extract(WITHOUT_DIGESTS, tmp_path_factory.mktemp("without-digests"))


@pytest.mark.deep
@each_kind
def test_a_process_without_digests_goes_on_beside_one_with(
    kind: str, tmp_path: Path, source_without_digests: Path
) -> None:
    """They drive and decide a loop of the older one by turns, each from what the other has stored."""
    where = place(kind, tmp_path)
    with process(source_without_digests, where) as old, process(ROOT / "src", where) as new:
        assert old("drive('one', None)") == "decision_required"
        new("decide('one', 'ana')")
        assert old("say('one', 'hurry')")
        assert new("drive('one', None)") == "end"
        assert old("say('one', 'thanks')")
        assert new("drive('one', None)") == "end"
    with store_in(where) as store:
        rev = store.load("one").rev
        assert store.head("one").rev == store.load("one", after=rev).rev == rev
