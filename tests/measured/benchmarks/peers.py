"""The peers in an environment of their own, because what they need is a lot, and not part of the project's."""

from __future__ import annotations

import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path

from tests.measured.benchmarks.measure import ROOT

# Inside the project's environment, so that `make clean` removes it, and nothing lints it.
ENVIRONMENT = ROOT / ".venv" / "peers"
PACKAGES = (
    f"anthropic=={version('anthropic')}",  # all talk through the same client
    "langchain-anthropic>=1.7,<2",
    "langgraph>=1.2.22,<2",
    "langgraph-checkpoint-sqlite>=3.1,<4",
    "pydantic-ai-slim[anthropic]>=2.68,<3",
    "openai-agents>=0.24,<1",
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
    install = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*install, *PACKAGES], check=False, stdout=sys.stderr).returncode:
        # One after the other, so that only a peer that cannot be installed is left out.
        ended = [subprocess.run([*install, each], check=False, stdout=sys.stderr).returncode for each in PACKAGES]
        return None if all(ended) else interpreter
    ready.write_text(" ".join(PACKAGES))
    return interpreter


def versions(interpreter: Path | None) -> str:
    """Return the versions of the peers that are installed."""
    if interpreter is None:
        return "no peer is installed"
    names = ["langgraph", "langgraph-checkpoint-sqlite", "langchain-anthropic", "pydantic-ai-slim", "openai-agents"]
    program = (
        "import importlib.metadata as m\n"
        f"for name in {names}:\n"
        " try: print(name, m.version(name))\n"
        " except m.PackageNotFoundError: print(name, 'is not installed')"
    )
    printed = subprocess.run([str(interpreter), "-c", program], check=False, stdout=subprocess.PIPE, text=True).stdout
    return ", ".join(printed.splitlines())
