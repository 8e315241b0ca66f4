"""The name of the process that holds a lease, with which other processes can check whether it still runs.

A process id is not enough: the system reuses it, and on another machine or in another container it belongs to another
process. So the name also contains the host, its boot id, the PID namespace and the start time of the process.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any, Literal

from toolloop._forks import ProcessState

_PROC = Path("/proc")
# Counts the time for which the system was suspended. Linux does not count it in CLOCK_MONOTONIC, and macOS does.
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", None if sys.platform == "win32" else time.CLOCK_MONOTONIC)


def read_boot_clock() -> float:
    """Return seconds by a clock that never goes back, and that counts suspension where the system can do that."""
    return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)


def name_this_process() -> str:
    """Return the name of this process: one line of JSON."""
    return _NAME.value()


def _make_name() -> str:
    stat = _stat_of(os.getpid())
    name = {**_HERE.value(), "pid": os.getpid(), "start": None if stat is None else _read_start(stat)}
    return json.dumps(name, separators=(",", ":"))


def find_standing(owner: str) -> Literal["alive", "gone", "unknown"]:
    """Return whether a process still runs, as far as that is certain.

    Args:
        owner: the name that `name_this_process()` returned in that process; text after it is ignored.

    Returns:
        "alive" or "gone" for a process of this host, boot and PID namespace; "unknown" for any other, and if the system
        does not provide the information.

    """
    name = _read_parts(owner)
    pid = name.get("pid")
    here = _HERE.value()
    if sys.platform == "linux" and None in here.values():
        return "unknown"  # /proc is not mounted
    if type(pid) is not int or pid < 1 or any(name.get(key) != value for key, value in here.items()):
        return "unknown"
    if not _exists(pid):
        return "gone"
    now = _stat_of(pid)
    if now is None or name.get("start") is None:
        return "unknown"
    return "alive" if name["start"] == _read_start(now) and not _is_zombie(now) else "gone"


def describe_owner(owner: str) -> str:
    """Return an owner as a short text for people."""
    name = _read_parts(owner)
    return f"process {name['pid']} on {name['host']}" if {"pid", "host"} <= name.keys() else owner


def _read_parts(owner: str) -> dict[str, Any]:
    try:
        name, _ = json.JSONDecoder().raw_decode(owner)
    except (ValueError, RecursionError):
        return {}
    return name if isinstance(name, dict) else {}


def _read_here() -> dict[str, str | None]:
    """Return the host, boot and PID namespace of this process. Its process ids are valid there only."""
    boot = _read(_PROC / "sys/kernel/random/boot_id")
    return {"host": platform.node(), "boot": boot, "pids": _read_target(_PROC / "self/ns/pid")}


def _exists(pid: int) -> bool:
    """Return whether a process with this id exists, or may exist."""
    if sys.platform == "win32":
        return True  # os.kill would end the process
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _read_start(stat: list[str]) -> int:
    """Return the start time of a process, in ticks since the boot."""
    return int(stat[19])


def _is_zombie(stat: list[str]) -> bool:
    """Return whether all threads of a process have ended, and its parent has not collected its exit status."""
    return stat[0] in "ZX" and int(stat[17]) <= 1


def _stat_of(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the third on, or None. See proc(5)."""
    # In a container, /proc may be that of another PID namespace.
    if _read_target(_PROC / "self") != str(os.getpid()):
        return None
    text = _read(_PROC / str(pid) / "stat")
    # The second field is the name of the program in parentheses, which may contain any character.
    return text.rpartition(")")[2].split() if text else None


def _read_target(link: Path) -> str | None:
    try:
        return str(link.readlink())
    except OSError:
        return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


# Read when they are first needed. A child may be in another PID namespace.
_NAME = ProcessState(lambda: cache(_make_name))
_HERE = ProcessState(lambda: cache(_read_here))
