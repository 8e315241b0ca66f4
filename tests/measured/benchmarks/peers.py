"""LangGraph in an environment of its own, because what it needs is a lot, and not part of the project's."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from tests.measured.benchmarks import rounds
from tests.measured.benchmarks.measure import ROOT, environment
from tests.measured.benchmarks.report import MISSING

# Inside the project's environment, so that `make clean` removes it, and nothing lints it.
ENVIRONMENT = ROOT / ".venv" / "peers"
PACKAGES = (
    f"anthropic=={version('anthropic')}",  # all talk through the same client
    "langchain-anthropic>=1.7,<2",
    "langgraph>=1.2.22,<2",
    "langgraph-checkpoint-sqlite>=3.1,<4",
)


def python(*, make: bool) -> Path | None:
    """Return the interpreter of the environment; None where it is not set up, or cannot be.

    Args:
        make: whether to set the environment up where it is not, or was for other packages.

    """
    interpreter = ENVIRONMENT / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    ready = ENVIRONMENT / ".ready"
    if ready.exists() and ready.read_text() == " ".join(PACKAGES):
        return interpreter
    if not make:
        return None
    sys.stderr.write(f"setting up {ENVIRONMENT.relative_to(ROOT)} (once)\n")
    venv.create(ENVIRONMENT, with_pip=True)
    install = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
    if subprocess.run(install, check=False, stdout=sys.stderr).returncode:
        return None
    ready.write_text(" ".join(PACKAGES))
    return interpreter


def checkpoints(interpreter: Path | None, turns: int, folder: Path) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kind of channels: the size of the file in MB, and KB written per turn at some rounds."""
    for kind in ("default", "delta"):
        cells = [MISSING] * 4
        if interpreter is not None:
            path = folder / f"langgraph-{kind}.db"
            command = [str(interpreter), "-W", "ignore", "-m", "tests.measured.benchmarks.langgraph_saver"]
            command += [kind, str(turns), str(path)]
            ended = subprocess.run(command, check=False, stdout=subprocess.PIPE, env=environment(), cwd=ROOT)
            if not ended.returncode:
                size, written = json.loads(ended.stdout)
                cells = rounds.cells(size, written.values())
            path.unlink(missing_ok=True)
        yield f"LangGraph's checkpointer, {kind} channels", *cells
