"""Real processes, cheaply: one that has everything imported forks a child for each run, and buries it.

There are no sleeps. A child and the test talk over a socket of their own, so each knows where the other stands.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, cast

ROOT = Path(__file__).parents[2]
# Seconds. The end of a process that has died is heard at once, and a busy machine takes minutes to start one.
_DEADLINE = 600.0
_MOST = 1 << 20
_MOST_DESCRIPTORS = 16


class Line:
    """One end of a conversation: a JSON object a line."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._read = end.makefile("r", encoding="utf-8")

    def say(self, **words: Any) -> None:
        self._end.sendall((json.dumps(words) + "\n").encode())

    def hear(self) -> dict[str, Any]:
        """What the other says next."""
        line = self._read.readline()
        if not line:
            raise EOFError("the other end is gone")
        return cast("dict[str, Any]", json.loads(line))

    def says_within(self, seconds: float) -> bool:
        """Whether the other says something in this time."""
        return bool(select.select([self._end], [], [], seconds)[0])

    def close(self) -> None:
        self._read.close()
        self._end.close()


class Child:
    """A process that runs a program."""

    def __init__(self, fork_server: ForkServer, pid: int, line: Line) -> None:
        self._server = fork_server
        self.pid = pid
        self.line = line
        self._alive = True

    def hear(self, *wanted: str) -> dict[str, Any]:
        """What it says next, which is one of these."""
        said = self.line.hear()
        assert not wanted or said.keys() & set(wanted), said.get("failed", said)
        return said

    def go(self) -> None:
        """Let it go on from where it stands."""
        self.line.say(go=True)

    @property
    def is_alive(self) -> bool:
        """Whether its end was not asked for yet."""
        return self._alive

    def signal(self, number: signal.Signals) -> None:
        self._server.ask(to=self.pid, signal=int(number))  # it may be in another PID namespace than the test

    def kill(self) -> None:
        """Kill it, and see it buried."""
        self.signal(signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL

    def kill_within(self, seconds: float) -> bool:
        """Kill it after so many seconds; False if it said something before, and lives."""
        if self.line.says_within(seconds):
            return False
        self.signal(signal.SIGKILL)
        self.wait()  # by the signal, or by itself in this moment
        return True

    def kill_unburied(self) -> None:
        """Kill it, but do not reap it: it stays a zombie until `bury`."""
        self.signal(signal.SIGKILL)
        self._server.ask(dead=self.pid)

    def bury(self) -> None:
        assert self.wait() == -signal.SIGKILL

    def end(self) -> Any:
        """Its last words, when it has come to its own end."""
        said = self.hear("end")
        assert self.wait() == 0
        return said["end"]

    def wait(self) -> int:
        """Wait until it has ended, and return its exit code."""
        self._alive = False
        code = self._server.ask(end_of=self.pid)
        self.line.close()
        return cast("int", code)

    def clear_away(self) -> None:
        if self._alive:
            self.signal(signal.SIGKILL)
            self.wait()


class Process(Protocol):
    """A process whose end can be waited for."""

    def wait(self, seconds: float, /) -> int: ...


def interpreter(programs: str, *, within: Sequence[str] = (), source: Path | None = None) -> Callable[[int], Process]:
    """Return what runs a module, which serves its programs, in an interpreter of its own.

    Args:
        programs: the module.
        within: the command that runs it, such as one with a host of its own.
        source: a folder with the library that it imports, if that is another version.

    """
    first = () if source is None else (str(source),)
    command = [*within, *(() if within else (sys.executable, "-m")), programs]
    return lambda number: subprocess.Popen(
        [*command, str(number)], pass_fds=[number], cwd=ROOT, env={**os.environ, **paths(*first)}
    )


def paths(*first: str) -> dict[str, str]:
    """Return the variable with which an interpreter finds what this one does."""
    return {"PYTHONPATH": os.pathsep.join((*first, str(ROOT), *sys.path))}


class ForkServer:
    """The process that forks, seen from the test.

    Args:
        starts: starts the process, which serves its programs at the descriptor that is given: `warm` of
            `tests/kit/warm_python.py`, or `interpreter`.

    """

    def __init__(self, starts: Callable[[int], Process]) -> None:
        mine, its = socket.socketpair()
        mine.settimeout(_DEADLINE)
        with its:
            self._process = starts(its.fileno())
        self._control = mine
        self._answers = Line(mine)
        self._children: list[Child] = []

    def ask(self, **words: Any) -> Any:
        self._answers.say(**words)
        return self._answers.hear()["answer"]

    def start(self, program: str, **given: Any) -> Child:
        """A new process that runs one of the programs."""
        return self._fork({"program": program, "given": given}, ())

    def become(self, descriptors: Sequence[int], **given: Any) -> Child:
        """A new process that leaves `serve` with what is given, and has copies of these descriptors."""
        return self._fork({"become": given}, descriptors)

    def _fork(self, asked: dict[str, Any], descriptors: Sequence[int]) -> Child:
        mine, its = socket.socketpair()
        mine.settimeout(_DEADLINE)
        with its:
            socket.send_fds(self._control, [(json.dumps(asked) + "\n").encode()], [its.fileno(), *descriptors])
            pid = self._answers.hear()["answer"]
        child = Child(self, pid, Line(mine))
        self._children.append(child)
        return child

    def clear_away(self) -> None:
        """End what a test left."""
        for child in self._children:
            child.clear_away()
        self._children.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.clear_away()
        self._answers.close()
        assert self._process.wait(_DEADLINE) == 0


def serve(control: socket.socket, programs: dict[str, Callable[..., Any]]) -> tuple[dict[str, Any], list[int]] | None:
    """Fork a child for each request, until there are no more requests.

    Returns:
        in a child that is to become something: what was given to it, and its descriptors, the first of which tells the
        test that it runs.

    """
    gc.collect()
    gc.freeze()  # no child looks through what all of them have
    answers = Line(control)
    while True:
        asked, descriptors, _, _ = socket.recv_fds(control, _MOST, _MOST_DESCRIPTORS)
        if not asked:
            answers.close()
            return None
        match json.loads(asked):
            case {"program": str(name), "given": given}:
                pid = os.fork()
                if pid == 0:
                    control.detach()
                    _be(programs[name], Line(socket.socket(fileno=descriptors[0])), given)
                os.close(descriptors[0])
                answers.say(answer=pid)
            case {"become": dict(given)}:
                pid = os.fork()
                if pid == 0:
                    answers.close()
                    return given, descriptors
                for each in descriptors:
                    os.close(each)
                answers.say(answer=pid)
            case {"end_of": int(pid)}:
                answers.say(answer=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            case {"to": int(pid), "signal": int(number)}:
                os.kill(pid, number)
                answers.say(answer=None)
            case {"dead": int(pid)}:
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
                answers.say(answer=None)


def _be(program: Callable[..., Any], line: Line, given: dict[str, Any]) -> None:
    """What a child does, to its end."""
    code = 1
    try:
        line.say(end=program(line, **given))
        code = 0
    except EOFError:
        pass  # the test is over
    except BaseException:  # noqa: BLE001 - the test is to see whatever went wrong here
        line.say(failed=traceback.format_exc())
    finally:
        os._exit(code)  # nothing of the parent is ended here


@contextmanager
def start_program(fork_server: ForkServer, program: str, **given: Any) -> Iterator[Child]:
    """A process that is ended with the block, if it has not ended by itself."""
    child = fork_server.start(program, **given)
    try:
        yield child
    finally:
        child.clear_away()
