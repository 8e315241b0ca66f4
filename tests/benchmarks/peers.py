"""The peers' own environment: what they need is a lot, and no part of the project's."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path

from tests.benchmarks.figures import Checkpoints
from tests.benchmarks.measure import ROOT, environment

# Inside the project's environment, so that nobody lints it, keeps it, or has to remove it by hand.
ENVIRONMENT = ROOT / ".venv" / "peers"
PACKAGES = (
    f"anthropic=={version('anthropic')}",  # all talk through the same client
    "langchain-anthropic>=1.7,<2",
    "langgraph>=1.2.22,<2",
    "langgraph-checkpoint-sqlite>=3.1,<4",
    "pydantic-ai-slim[anthropic]>=2.68,<3",
)
NAMED = ("pydantic-ai-slim", "langgraph", "langchain-core", "langchain-anthropic", "langgraph-checkpoint-sqlite")
KINDS = ("default", "delta")


class NotThere(Exception):
    """The environment is not set up, or cannot be; the text says which."""


def python(*, make: bool) -> Path:
    """The interpreter of the environment.

    Args:
        make: whether to set the environment up where it is not, or was for other packages.

    Raises:
        NotThere: it is not set up, and shall not be or cannot be.

    """
    interpreter = ENVIRONMENT / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    ready = ENVIRONMENT / ".ready"
    if not ready.exists() or ready.read_text() != " ".join(PACKAGES):
        if not make:
            raise NotThere("not set up; `make bench` does that")
        sys.stderr.write(f"\r\033[Ksetting up {ENVIRONMENT.relative_to(ROOT)} (once)\n")
        venv.create(ENVIRONMENT, with_pip=True)
        install = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
        if subprocess.run(install, check=False, stdout=sys.stderr).returncode:
            raise NotThere("could not be installed")
        ready.write_text(" ".join(PACKAGES))
    return interpreter


def versions(interpreter: Path) -> dict[str, str]:
    """The versions of the peers, by their names."""
    program = f"import json, importlib.metadata as m; print(json.dumps({{n: m.version(n) for n in {NAMED!r}}}))"
    printed = subprocess.run([str(interpreter), "-c", program], check=True, stdout=subprocess.PIPE).stdout
    found: dict[str, str] = json.loads(printed)
    return found


def measure(interpreter: Path, kind: str, rounds: int, folder: Path, *, turns: int, runs: int) -> Checkpoints:
    """Hold the conversation in a new process of that environment, over a file in the folder.

    Args:
        interpreter: of the environment.
        kind: of the channels.
        rounds: of the journal.
        folder: where its file goes, and goes away again.
        turns: of the conversations whose time is taken.
        runs: how many these are.

    """
    path = folder / f"langgraph-{kind}.db"
    sizes = map(str, (rounds, turns, runs))
    command = [str(interpreter), "-W", "ignore", "-m", "tests.benchmarks.langgraph_saver", kind, *sizes, str(path)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment(), cwd=ROOT).stdout
    path.unlink()
    figures = json.loads(printed)
    figures["written"] = {int(mark): figure for mark, figure in figures["written"].items()}
    return Checkpoints(**figures)
