"""A real PgBouncer in front of a database, from the system's package."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import psycopg
import pytest

needs_pooler = pytest.mark.skipif(
    shutil.which("pgbouncer", path="/usr/sbin:" + os.environ["PATH"]) is None,
    reason="no PgBouncer here: apt-get install pgbouncer",
)
_PORT = 6432  # part of the name of its socket, in a folder of its own: it listens at no port
_SIZE = 3  # sessions with the server
_CONFIG = """
[databases]
* = host={folder} user=owner
[pgbouncer]
listen_addr =
unix_socket_dir = {own}
listen_port = {port}
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
logfile = {own}/log
pidfile = {own}/pid
"""


@contextmanager
def start_pooler(url: str, mode: Literal["transaction", "session"]) -> Iterator[str]:
    """Start a pooler, and yield the URL of a database through it. `url`: of `tests.kit.postgres`."""
    name, (_, _, server) = urlsplit(url).path.removeprefix("/"), url.partition("?host=")
    with tempfile.TemporaryDirectory(prefix="toolloop-pooler-") as folder:
        own = Path(folder)
        config = own / "config"
        config.write_text(_CONFIG.format(folder=server, own=own, port=_PORT, mode=mode, size=_SIZE))
        entry = pwd.getpwnam("nobody" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name)
        who: dict[str, object] = {}
        if os.getuid() == 0:  # it refuses to run as root
            who = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
            os.chown(own, entry.pw_uid, entry.pw_gid)
        program = shutil.which("pgbouncer", path="/usr/sbin:" + os.environ["PATH"]) or ""
        with (own / "output").open("w") as output:
            process = subprocess.Popen([program, str(config)], stdout=output, stderr=output, **who)  # type: ignore[call-overload] # the options of one system
        through = f"postgresql://owner@/{name}?host={own}&port={_PORT}"
        try:
            while True:
                assert process.poll() is None, (own / "output").read_text()
                try:
                    psycopg.connect(through).close()
                    break
                except psycopg.OperationalError:
                    continue  # it has not begun to listen
            yield through
        finally:
            process.terminate()
            process.wait()
