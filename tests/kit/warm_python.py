"""Python programs that start at once: a process that has the libraries imported forks one for each.

An interpreter of its own takes one to three seconds of a core to import `anthropic` and what else a program needs. From
the fork on, a program is as if it had been started: a session, a terminal, an environment and a folder of its own. What
is about the start itself (what an import loads, how long it takes) is tested with an interpreter of its own.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

from tests.kit.fork_server import ROOT, ForkServer, interpreter, paths, serve
from tests.kit.warm_up import warm_up

_LOADED = (
    "fastapi",
    "toolloop._cli.run",
    "toolloop.inbox.page.serving",
    "toolloop._worker.sync",
    "uvicorn",
)
_ENDS_WITHIN = 60.0  # seconds
_ABOVE = 64  # copies of descriptors are out of the way of those that a program has under a number of its own


@functools.cache
def _forks() -> ForkServer:
    """The process that forks, one for a process of tests."""
    server = ForkServer(interpreter("tests.kit.warm_python")).__enter__()
    atexit.register(server.__exit__, None, None, None)
    return server


class Program:
    """A running Python program. As a context manager it is killed with the block, if it has not ended.

    Args:
        arguments: what follows `python`: a script, or `-m` and a module, and their arguments.
        stdin, stdout, stderr: descriptors; None is `/dev/null`.
        env: its whole environment.
        cwd: its folder.
        pass_fds: descriptors that it has under the same numbers.
        has_terminal: whether its standard input becomes its controlling terminal.

    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        pass_fds: Sequence[int] = (),
        has_terminal: bool = False,
    ) -> None:
        self.returncode: int | None = None
        with Path(os.devnull).open("r+b", buffering=0) as nothing:
            standard = [nothing.fileno() if each is None else each for each in (stdin, stdout, stderr)]
            self._child = _forks().become(
                [*standard, *pass_fds],
                arguments=list(arguments),
                env=dict(os.environ if env is None else env),
                folder=os.fspath(cwd or Path.cwd()),
                numbers=[0, 1, 2, *pass_fds],
                has_terminal=has_terminal,
            )
        self.pid = self._child.pid

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, if its end was not waited for."""
        if self.returncode is None:
            self._child.signal(number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def wait(self, seconds: float = _ENDS_WITHIN) -> int:
        """Return its exit code, or minus the signal that ended it.

        Raises:
            subprocess.TimeoutExpired: it runs on.

        """
        if self.returncode is None:
            if not self._child.line.says_within(seconds):  # the line is closed when the process ends
                raise subprocess.TimeoutExpired("python", seconds)
            self.returncode = self._child.wait()
        return self.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.kill()
        self.wait()


class Piped:
    """A running program whose output is read from pipes, as lines of text.

    Attributes:
        program: the program.
        stdout: what it prints.
        stderr: what it prints of errors.

    """

    def __init__(self, arguments: Sequence[str], **options: Any) -> None:
        (out, its_out), (err, its_err) = os.pipe(), os.pipe()
        self.stdout: IO[str] = os.fdopen(out, encoding="utf-8")
        self.stderr: IO[str] = os.fdopen(err, encoding="utf-8")
        try:
            self.program = Program(arguments, stdout=its_out, stderr=its_err, **options)
        finally:
            os.close(its_out)
            os.close(its_err)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        with self.stdout, self.stderr:
            self.program.__exit__(*exc_info)


def run(arguments: Sequence[str], keys: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with these keys as its input, and return what it printed."""
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        stdin.write(keys.encode())
        stdin.seek(0)
        standard: dict[str, Any] = {"stdin": stdin.fileno(), "stdout": out.fileno(), "stderr": err.fileno()}
        with Program(arguments, **standard, **options) as program:
            code = program.wait()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(list(arguments), code, out.read().decode(), err.read().decode())


def warm(programs: str) -> Callable[[int], Program]:
    """Return what runs a module that serves programs, for a `ForkServer`: its process has the libraries already."""

    def start(number: int) -> Program:
        env = {**os.environ, **paths()}
        return Program(["-m", programs, str(number)], stdout=1, stderr=2, env=env, cwd=ROOT, pass_fds=[number])

    return start


def _become(
    descriptors: Sequence[int],
    arguments: list[str],
    env: dict[str, str],
    folder: str,
    numbers: Sequence[int],
    *,
    has_terminal: bool,
) -> None:
    """Run a program in this process, as if an interpreter had been started for it."""
    os.setsid()
    copies = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for each in descriptors]
    for each in descriptors:
        os.close(each)  # but for the copy of the first, which is closed when the process ends
    for copy, number in zip(copies[1:], numbers, strict=True):
        os.dup2(copy, number)
        os.close(copy)
    if has_terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    by_line = {2, *filter(os.isatty, (0, 1))}  # as an interpreter has them
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        signal.signal(number, handler)
    encoding = env.get("PYTHONIOENCODING", "utf-8")
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding=encoding, errors=errors, buffering=1 if number in by_line else -1, closefd=False)  # noqa: SIM115 - as long as the process
        for number, mode, errors in ((0, "r", "strict"), (1, "w", "strict"), (2, "w", "backslashreplace"))
    )
    if env.get("PYTHONWARNINGS") == "error":
        warnings.simplefilter("error")
    if arguments[0] == "-m":
        sys.argv, sys.path[0] = arguments[1:], folder
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = arguments, os.fspath(Path(arguments[0]).parent)
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    warm_up(*_LOADED)
    if asked := serve(socket.socket(fileno=int(sys.argv[1])), {}):
        _become(asked[1], **asked[0])
