"""The connections of a PostgreSQL store: a few for each process, and each wait has a time limit."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, suppress
from math import inf
from queue import Empty, SimpleQueue
from selectors import EVENT_READ, DefaultSelector
from typing import Any, Final, TypeVar
from weakref import finalize

from toolloop.errors import StoreError, UnreadableSnapshot
from toolloop.stores.process import read_boot_clock
from toolloop.stores.watchers import QUIET, Watchers

try:
    import psycopg
    from psycopg import errors
    from psycopg.conninfo import conninfo_to_dict
except ImportError as _missing:
    raise ImportError(
        f"PostgresStore needs the extra 'postgres' ({_missing}): pip install 'toolloop[postgres]'",
        name=_missing.name,
    ) from None

T = TypeVar("T")

LOG = logging.getLogger("toolloop")
CHANNEL: Final = "toolloop"  # of NOTIFY
_SHARED: Final = (
    "a pooler in transaction mode lets other clients use this session: connect directly, or through a pooler in "
    "session mode"
)
_MARK: Final = "toolloop.session"  # a setting, by which a connection recognizes its session
IS_OWN: Final = f"current_setting('{_MARK}', true) IS NOT DISTINCT FROM %s"
# A commit may wait for less than the disk only if the database is set so. A setting for the session would not do: a
# pooler may run the next statement in another one.
_BE_DURABLE: Final = """CASE current_setting('synchronous_commit') WHEN 'off'
    THEN set_config('synchronous_commit', 'on', true) END"""
CLOCK: Final = "extract(epoch FROM current_timestamp)::float8"  # see `fetch_timed_rows`
_QUICK = 1.0  # seconds; a slower answer, or one after a suspension, does not tell what the time is
_CONNECT_SECONDS: Final = 2  # psycopg's least time for opening a connection
_PULSE = 1.0  # seconds after which a listener checks whether it is still needed
_CHECK = 10.0  # seconds after which it checks a silent connection
_DEAF = 3.0  # seconds after which its own first notification does not arrive any more
_LOST = ("08", "57P")  # start of SQLSTATE: the connection failed, or the server is starting up or shutting down
_PROBLEMS: Final[tuple[tuple[type[psycopg.Error], str], ...]] = (
    (errors.DuplicatePreparedStatement, _SHARED),
    (errors.InvalidSqlStatementName, _SHARED),
    (errors.QueryCanceled, "the server did not finish in time: try again"),
    (
        errors.InsufficientPrivilege,
        "this role lacks a privilege: see `toolloop migrate --help`",
    ),
    (errors.ReadOnlySqlTransaction, "it is read-only: connect to the primary (target_session_attrs=read-write)"),
    (errors.ProgramLimitExceeded, "a value is too long to store"),
)


class ServerClock:
    """The clock of the server: how far it is ahead of the boot clock of this host. Any thread may use it."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._ahead: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether it was read."""
        return self._ahead is not None

    def learn(self, time_there: float, asked_at: float) -> None:
        """Take a time of the server, which was read after `asked_at` by the boot clock, and before now."""
        took = read_boot_clock() - asked_at
        if took <= _QUICK or self._ahead is None:
            self._ahead = time_there - asked_at - took / 2

    def now(self) -> float:
        """Return the time, in seconds since the epoch."""
        return read_boot_clock() + (self._ahead or 0.0)


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that waits for an answer until a deadline.

    psycopg waits as long as the connection is open, and a network that drops all packets leaves it open.

    Attributes:
        give_up: the deadline, by `time.monotonic`.
        mark: the mark of its session.
        clock: the clock of its server.

    """

    give_up = inf
    mark = ""
    clock: ServerClock

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Drive a generator of psycopg to its end. It is resumed at least every 0.1 seconds."""
        return super().wait(self._wait_until(gen), *args, **options)

    def _wait_until(self, gen: Any) -> Generator[Any, Any, Any]:
        ready = None
        while True:
            try:
                wanted = gen.send(ready)
            except StopIteration as end:
                return end.value
            ready = yield wanted
            if time.monotonic() >= self.give_up:
                raise psycopg.OperationalError("no answer in time")


def fetch_rows(db: Connection, query: str, *values: object) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    return db.execute(query.encode(), values or None).fetchall()


def change(db: Connection, query: str, *values: object) -> tuple[Any, ...] | None:
    """Run a statement that changes rows, so that the change is on disk when it is committed.

    Args:
        db: the connection.
        query: common table expressions. `changed` are the rows, at most one, without NULL in its first column; it
            changes nothing unless `IS_OWN`.
        values: of its placeholders.

    Returns:
        The row, or None.

    Raises:
        StoreError: the session is not that of the connection.

    """
    columns = f"{IS_OWN}, {_BE_DURABLE}, changed.*, {CLOCK}"
    whole = f"WITH {query} SELECT {columns} FROM (VALUES (1)) this LEFT JOIN changed ON true"  # noqa: S608 - no text of a caller
    is_own, _, *row = fetch_timed_rows(db, whole, *values, db.mark)[0]
    if not is_own:
        raise StoreError(f"{_SHARED}. Nothing was changed")
    return None if row[0] is None else tuple(row)


def fetch_timed_rows(db: Connection, query: str, *values: object) -> list[tuple[Any, ...]]:
    """Return the rows of a query whose last column is `CLOCK`, without that column: the clock is read on the way."""
    asked_at = read_boot_clock()
    rows = fetch_rows(db, query, *values)
    if rows:
        db.clock.learn(rows[0][-1], asked_at)
    return [row[:-1] for row in rows]


class _Pool:
    """The connections of one process: permits to open one, and the idle connections."""

    def __init__(self, size: int) -> None:
        self.pid = os.getpid()
        self.permits: SimpleQueue[None] = SimpleQueue()
        self.idle: deque[Connection] = deque()
        for _ in range(size):
            self.permits.put(None)

    def pop(self) -> Connection | None:
        """Return an idle connection, unless the server is known to have closed it."""
        while self.idle:
            try:
                connection = self.idle.pop()
            except IndexError:
                break  # another thread took the last one
            with DefaultSelector() as selector:
                selector.register(connection, EVENT_READ)
                if not selector.select(0):  # a message without a request means that the server ends the connection
                    return connection
            connection.close()
        return None

    def close(self) -> None:
        """Close the idle connections, unless they belong to the parent of this process."""
        while self.pid == os.getpid() and self.idle:
            with suppress(IndexError):
                self.idle.pop().close()


class Connections:
    """Runs functions with a connection. The first call opens one."""

    def __init__(
        self, url: str, *, size: int, timeout: float, settings: dict[str, str], set_up: Callable[[Connection], None]
    ) -> None:
        """Set the server.

        Args:
            url: as for libpq.
            size: the maximum number of connections per process, without the one that listens.
            timeout: the maximum time of a call, in seconds.
            settings: the settings of each session.
            set_up: called with each new connection.

        Raises:
            ValueError: the URL cannot be read.

        """
        try:
            self._params: dict[str, Any] = dict(conninfo_to_dict(url))
        except psycopg.ProgrammingError:
            raise ValueError(  # without psycopg's error, which shows the password
                "url is not a PostgreSQL URL; write it like postgresql://user@host:5432/database"
            ) from None
        self._size = size
        self._timeout = timeout
        self._settings = settings
        self._set_up = set_up
        self._watchers = Watchers()
        self._has_warned = False  # that notifications do not arrive
        self._clock = ServerClock()
        self._begin()

    def __repr__(self) -> str:
        """Return the address of the server without secrets."""
        return " ".join(
            f"{key}={self._params[key]}" for key in ("host", "port", "dbname", "user") if key in self._params
        )

    def _begin(self) -> None:
        self._pool = _Pool(self._size)
        finalize(self, self._pool.close)

    def close(self) -> None:
        """Close the connections. The next call opens new ones."""
        pool = self._pool
        self._begin()
        pool.close()

    def _find_pool(self) -> _Pool:
        if self._pool.pid != os.getpid():  # a forked child must neither use nor close its parent's connections
            self._begin()
        return self._pool

    def now(self) -> float:
        """Return the time of the server. It is known from what was read, or else a connection is opened."""
        if not self._clock.is_known:
            self.run(lambda _: None)
        return self._clock.now()

    def watch(self, on_change: Callable[[], object]) -> AbstractContextManager[None]:
        """While the block runs, call a function soon after a change by any process."""
        return self._watchers.watch(on_change, self._look)

    def _look(self, watchers: Watchers) -> None:
        """Listen for changes while they are needed. See `Watchers`."""
        connection = self._connect(time.monotonic() + self._timeout)
        try:
            own = f"{CHANNEL}_{connection.mark}"
            connection.execute(f"LISTEN {CHANNEL}; LISTEN {own}".encode())
            self.run(lambda db: db.execute(f"NOTIFY {own}".encode()))
            is_heard, checked = False, (begun := time.monotonic())
            while watchers.is_needed:
                connection.give_up = inf
                for _ in connection.notifies(timeout=_PULSE, stop_after=1):
                    is_heard = True
                    watchers.tell()  # the first time, of changes before the LISTEN
                    time.sleep(QUIET)
                    checked = time.monotonic()
                if not is_heard and time.monotonic() - begun > _DEAF:
                    self._warn_of_silence()
                if time.monotonic() - checked > _CHECK:
                    connection.give_up = time.monotonic() + self._timeout
                    connection.execute("SELECT 1")
                    checked = time.monotonic()
        finally:
            connection.close()

    def _warn_of_silence(self) -> None:
        """Log once that notifications do not arrive. Callers poll the store."""
        if not self._has_warned:
            LOG.warning("%r sends no notifications of changes, so they are noticed later: %s", self, _SHARED)
        self._has_warned = True

    def run(self, act: Callable[[Connection], T], *, again: bool = False) -> T:
        """Run a function with a connection; each statement in it is a transaction.

        Args:
            act: the function.
            again: whether it may run a second time, on a new connection, if the answer was lost.

        Raises:
            StoreError: the server failed or cannot be reached.

        """
        pool, give_up = self._find_pool(), time.monotonic() + self._timeout
        permit: list[None] = []
        try:
            # In one call, so that a Ctrl-C comes before the permit is taken, or when `finally` can return it.
            permit.extend(map(pool.permits.get, [True], [self._timeout]))
            # The rest of the time is for the second try.
            return self._try(act, pool, give_up - self._timeout / 3 if again else give_up)
        except Empty:
            raise StoreError(
                f"all {self._size} connections of {self!r} stayed in use (gave up after {self._timeout:g} s): "
                "try again, or pass a larger pool_size to PostgresStore"
            ) from None
        except psycopg.OperationalError as error:
            if not (again and _is_lost(error) and give_up - time.monotonic() >= _CONNECT_SECONDS):
                raise self._explain(error) from error
            pool.close()  # the others are lost, too
            try:
                return self._try(act, pool, give_up)
            except psycopg.Error as second:
                raise self._explain(second) from second
        except psycopg.Error as error:
            raise self._explain(error) from error
        # The callers check what users give, so a stored value has a wrong type, or is too large or too deep.
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise UnreadableSnapshot(f"{self!r} is damaged: {error}. Nothing was changed") from error
        finally:
            for each in permit:
                pool.permits.put(each)
            if pool is not self._pool:
                pool.close()  # as `close` did while this one was in use

    def look(self, act: Callable[[Connection], T]) -> T:
        """Run a function with a connection on which `set_up` was not called.

        Raises:
            StoreError: the server failed or cannot be reached.

        """
        try:
            with self._open(time.monotonic() + self._timeout) as connection:
                return act(connection)
        except psycopg.Error as error:
            raise self._explain(error) from error

    def _try(self, act: Callable[[Connection], T], pool: _Pool, give_up: float) -> T:
        connection = pool.pop() or self._connect(give_up)
        connection.give_up = give_up
        try:
            result = act(connection)
        except StoreError:  # a refusal, after an answer
            pool.idle.append(connection)
            raise
        except BaseException:
            connection.close()  # the server may still run the statement
            raise
        pool.idle.append(connection)
        return result

    def _connect(self, give_up: float) -> Connection:
        connection = self._open(give_up)
        try:
            connection.mark = secrets.token_hex(8)
            settings = {**self._settings, _MARK: connection.mark}
            each = ", ".join(["set_config(%s, %s, false)"] * len(settings))
            values = [text for pair in settings.items() for text in pair]
            fetch_timed_rows(connection, f"SELECT {each}, {CLOCK}", *values)
            self._set_up(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open(self, give_up: float) -> Connection:
        hosts = str(self._params.get("host", "")).count(",") + 1
        seconds = max(_CONNECT_SECONDS, int((give_up - time.monotonic()) / hosts))
        params: dict[str, Any] = {
            "application_name": "toolloop",
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": int(self._timeout * 1000),
            **self._params,
            "client_encoding": "utf8",
            "connect_timeout": seconds,
        }
        connection = Connection.connect(autocommit=True, **params)
        connection.give_up = give_up
        connection.clock = self._clock
        return connection

    def _explain(self, error: psycopg.Error) -> StoreError:
        said = (str(error).strip() or type(error).__name__).replace(str(self._params.get("password") or "\0"), "***")
        problem = next((text for kind, text in _PROBLEMS if isinstance(error, kind)), "")
        if isinstance(error, errors.LockNotAvailable):
            # The server names the row for which it waited.
            locked = "the loop" if error.diag.context else "a table, as by ALTER TABLE, VACUUM FULL or a restore,"
            problem = f"{locked} stayed locked by another connection: try again"
        elif not problem:
            problem = "failed" if not _is_lost(error) else "cannot be reached, or the answer was lost: try again"
        return StoreError(f"{self!r}: {problem} ({said})")


def _is_lost(error: psycopg.Error) -> bool:
    """Return whether the connection failed, as opposed to an error that the server answered."""
    return error.sqlstate is None or error.sqlstate.startswith(_LOST)
