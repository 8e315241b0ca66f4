"""Who drives a loop: a process, named so that others can tell whether it is still there.

A process number alone tells nothing: it is used again, and it means another process on another machine or in another
container. So a name also has the machine's boot, the space of its process numbers, and when the process began.
`standing` says "alive" or "gone" only where that is certain.
"""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any, Literal

_PROC = Path("/proc")


@cache  # a driver asks often
def this_process() -> str:
    """The name of this process: one line of JSON."""
    stat = _stat_of(os.getpid())
    name = {**_here(), "pid": os.getpid(), "start": None if stat is None else _start(stat)}
    return json.dumps(name, separators=(",", ":"))


def standing(owner: str) -> Literal["alive", "gone", "unknown"]:
    """Whether a process is still there.

    Args:
        owner: what `this_process()` said in it; words after that are ignored.

    Returns:
        "gone" only of a process of this machine, boot and space of process numbers that is no more; "alive" only of one
        that certainly runs; else "unknown".

    """
    said = _parts(owner)
    pid = said.get("pid")
    here = _here()
    if sys.platform == "linux" and None in here.values():
        return "unknown"  # no /proc here
    if type(pid) is not int or pid < 1 or any(said.get(key) != value for key, value in here.items()):
        return "unknown"
    if not _exists(pid):
        return "gone"
    now = _stat_of(pid)
    if now is None or said.get("start") is None:
        return "unknown"
    return "alive" if said["start"] == _start(now) and not _is_zombie(now) else "gone"


def describe(owner: str) -> str:
    """An owner in words."""
    said = _parts(owner)
    return f"process {said['pid']} on {said['host']}" if {"pid", "host"} <= said.keys() else owner


def _parts(owner: str) -> dict[str, Any]:
    try:
        said, _ = json.JSONDecoder().raw_decode(owner)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


@cache
def _here() -> dict[str, str | None]:
    """Where a process number means what it means here. It never changes while a process runs."""
    boot = _read(_PROC / "sys/kernel/random/boot_id")
    return {"host": _host(), "boot": boot, "pids": _target(_PROC / "self/ns/pid")}


def _host() -> str:
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "this machine")


def _exists(pid: int) -> bool:
    """Whether there is a process of this number, or nobody can tell."""
    if sys.platform == "win32":
        return True  # here os.kill would end it
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _start(stat: list[str]) -> int:
    """When a process began, in ticks since the boot."""
    return int(stat[19])


def _is_zombie(stat: list[str]) -> bool:
    """Whether all of a process has ended, and only its parent has not taken note."""
    return stat[0] in "ZX" and int(stat[17]) <= 1


def _stat_of(pid: int) -> list[str] | None:
    """What Linux tells of a process, from the third field of /proc/PID/stat on. See proc(5)."""
    # Whose numbers does /proc show? In a container that was made by hand, perhaps not ours.
    if _target(_PROC / "self") != str(os.getpid()):
        return None
    text = _read(_PROC / str(pid) / "stat")
    # The second field is the program's name in brackets, and may have any character in it.
    return text.rpartition(")")[2].split() if text else None


def _target(link: Path) -> str | None:
    try:
        return str(link.readlink())
    except OSError:
        return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


if hasattr(os, "register_at_fork"):
    # A child may even be in another space of process numbers.
    os.register_at_fork(after_in_child=this_process.cache_clear)
    os.register_at_fork(after_in_child=_here.cache_clear)
