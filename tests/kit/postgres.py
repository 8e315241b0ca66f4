"""A real PostgreSQL for the tests, from the system's package. All processes of a test run share one server."""

from __future__ import annotations

import fcntl
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import define, field

_USED: list[Server] = []  # the shared one, in a process that uses it
_DEADLINE = "60"  # seconds
_NUMBERS = itertools.count()
# Nothing here survives a power cut, and nothing has to.
_QUICK = ("fsync=off", "full_page_writes=off", "autovacuum=off")
_SETTINGS = ("listen_addresses=", "max_connections=300", "shared_buffers=32MB", "log_min_messages=panic")


def programs() -> Path | None:
    """The folder with the programs of the newest PostgreSQL, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).resolve().parent if on_path else None


needs_postgres = pytest.mark.skipif(programs() is None, reason="no PostgreSQL here: apt-get install postgresql")
in_postgres = pytest.param("postgres", marks=needs_postgres)
in_postgres_deep = pytest.param("postgres", marks=[needs_postgres, pytest.mark.deep])


@define
class Server:
    """A server in a folder of its own, which it is reached by: it listens at no port."""

    folder: Path
    settings: tuple[str, ...] = _QUICK
    bin: Path = field(factory=lambda: programs() or Path())

    @property
    def user(self) -> str:
        """PostgreSQL refuses to run as root."""
        return pwd.getpwuid(os.getuid()).pw_name if os.getuid() else "nobody"

    def run(self, program: str, *arguments: str) -> None:
        entry = pwd.getpwnam(self.user)
        who = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []} if os.getuid() == 0 else {}
        command = [str(self.bin / program), *arguments]
        # Not a pipe: the server would keep it open.
        with (self.folder / "log").open("w+") as log:
            done = subprocess.run(command, stdout=log, stderr=log, check=False, cwd=self.folder, **who)  # type: ignore[call-overload]
            log.seek(0)
            assert done.returncode == 0, log.read()

    def create(self) -> None:
        self.folder.mkdir(exist_ok=True)
        if os.getuid() == 0:
            shutil.chown(self.folder, self.user)
        options = ("--no-sync", "--auth=trust", "--username=owner", "--encoding=UTF8", "--locale=C")
        self.run("initdb", f"--pgdata={self.folder}/data", *options)

    def start(self) -> None:
        given = " ".join(
            f"-c {each}" for each in (f"unix_socket_directories={self.folder}", *_SETTINGS, *self.settings)
        )
        self.run("pg_ctl", "start", "-w", "-s", "-t", _DEADLINE, f"--pgdata={self.folder}/data", "-o", given)

    def stop(self, mode: str = "immediate") -> None:
        self.run("pg_ctl", "stop", "-s", "-t", _DEADLINE, "-m", mode, f"--pgdata={self.folder}/data")

    def url(self, database: str, user: str = "owner") -> str:
        return f"postgresql://{user}:s3cret@/{database}?host={self.folder}"

    def database(self) -> str:
        """Create an empty database, and return its URL."""
        import psycopg  # noqa: PLC0415 - most test files need none of this

        name = f"test_{os.getpid()}_{next(_NUMBERS)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0".encode())
        return self.url(name)


@contextmanager
def _lock(file: Path) -> Generator[None]:
    with file.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _find_shared_folder() -> Path:
    """The folder where the processes of this test run meet."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"{os.getpid()}")
    folder = Path(tempfile.gettempdir()) / f"toolloop-postgres-{run}"
    folder.mkdir(exist_ok=True)
    return folder


def find_shared_server() -> Server:
    """The server of this test run: the first process that needs it starts it, and the last one stops it."""
    if not _USED:
        folder = _find_shared_folder()
        server, users = Server(folder / "server"), folder / "users"
        with _lock(folder / "lock"):
            if not users.exists():
                server.create()
                server.start()
            with users.open("a") as file:
                file.write(f"{os.getpid()}\n")
        _USED.append(server)
    return _USED[0]


def leave_shared_server() -> None:
    """Stop the server of this test run, if no other process uses it."""
    if not _USED:
        return
    server, folder = _USED.pop(), _find_shared_folder()
    with _lock(folder / "lock"):
        users = folder / "users"
        left = [pid for pid in users.read_text().split() if pid != str(os.getpid())]
        users.write_text("".join(f"{pid}\n" for pid in left))
        if not left:
            users.unlink()
            server.stop()
            shutil.rmtree(folder)


def database() -> str:
    """The URL of a new database on the server of this test run."""
    return find_shared_server().database()


@contextmanager
def own_server(settings: tuple[str, ...] = ()) -> Iterator[Server]:
    """A server that a test may kill."""
    with tempfile.TemporaryDirectory(prefix="toolloop-pg-") as folder:
        server = Server(Path(folder), settings)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
