"""The peers' own environment: what they need is a lot, and no part of the project's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).parents[2]
# Inside the project's environment, so that nobody lints it, keeps it, or has to remove it by hand.
ENVIRONMENT = ROOT / ".venv" / "peers"
PACKAGES = ("langgraph>=1.2.22,<2", "langgraph-checkpoint-sqlite>=3.1,<4")
KINDS = ("default", "delta")


@frozen
class Checkpoints:
    """A conversation as LangGraph's SQLite checkpointer keeps it; see `journal.Kept`."""

    version: str
    file: int
    written: dict[int, float]
    waking: float
    cpu: float


def python(*, make: bool) -> Path | None:
    """The interpreter of the environment. Where there is none it is made, if wanted; else there is None."""
    interpreter = ENVIRONMENT / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    ready = ENVIRONMENT / ".ready"
    if not ready.exists() or ready.read_text() != " ".join(PACKAGES):
        if not make:
            return None
        sys.stderr.write(f"\r\033[Ksetting up {ENVIRONMENT.relative_to(ROOT)} (once) …")
        venv.create(ENVIRONMENT, with_pip=True)
        install = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
        subprocess.run(install, check=True, stdout=sys.stderr)
        ready.write_text(" ".join(PACKAGES))
    return interpreter


def measure(interpreter: Path, kind: str, rounds: int, folder: Path) -> Checkpoints:
    """Hold the conversation in a new process of that environment, over a file in the folder."""
    path = folder / f"langgraph-{kind}.db"
    command = [str(interpreter), "-W", "ignore", "-m", "tests.benchmarks.langgraph_saver", kind, str(rounds), str(path)]
    environment = {**os.environ, "LANGSMITH_TRACING": "false"}
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment, cwd=ROOT).stdout
    path.unlink()
    figures = json.loads(printed)
    figures["written"] = {int(mark): figure for mark, figure in figures["written"].items()}
    return Checkpoints(**figures)
