"""The peers in an environment of their own, because what they need is a lot, and not part of the project's."""

from __future__ import annotations

import re
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
    # These are for the programs in `tests/recorded/peers/programs` only.
    "langchain>=1.5,<2",
    "agent-framework-core>=1.23,<2",
    "trio>=0.27",
)
_NAMES = tuple(re.split(r"[\[=><]", each)[0] for each in PACKAGES)


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
    if not _installs(interpreter, *PACKAGES):
        # One after the other, so that only a peer that cannot be installed is left out.
        failed = [each for each in PACKAGES if not _installs(interpreter, each)]
        if len(failed) == len(PACKAGES):
            return None
        sys.stderr.write(f"left out, until {ENVIRONMENT} is removed: {', '.join(failed)}\n")
    ready.write_text(" ".join(PACKAGES))
    return interpreter


def _installs(interpreter: Path, *packages: str) -> bool:
    command = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    return subprocess.run(command, check=False, stdout=sys.stderr).returncode == 0


def versions(interpreter: Path | None) -> str:
    """Return the versions of the peers that are installed."""
    if interpreter is None:
        return "no peer is installed"
    program = (
        "import importlib.metadata as m\n"
        f"for name in {_NAMES}:\n"
        " try: print(name, m.version(name))\n"
        " except m.PackageNotFoundError: print(name, 'is not installed')"
    )
    printed = subprocess.run([str(interpreter), "-c", program], check=False, stdout=subprocess.PIPE, text=True).stdout
    return ", ".join(printed.splitlines())
