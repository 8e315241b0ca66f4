"""Build the distributions, check them, and use them in empty environments.

    python scripts/package.py             wheel and sdist
    python scripts/package.py --extras    and the wheel with each extra alone

The results are in build/package. It uses the interpreter that runs it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "build" / "package"
USE = """
import importlib.metadata, pathlib, toolloop
from toolloop import ToolLoopHandle
from toolloop.testing import FakeMessagesAPI, reply

assert toolloop.__version__ == importlib.metadata.version("toolloop")
assert importlib.metadata.entry_points(group="pytest11", name="toolloop")
assert pathlib.Path(toolloop.__file__).with_name("py.typed").exists()
with FakeMessagesAPI([reply("Hello")]) as api, api.client() as client:
    handle = ToolLoopHandle(client, params={"model": "claude-opus-5-5", "max_tokens": 99})
    handle.follow_up("Hi")
    assert handle.run().text == "Hello"
"""
# What uses the extra. An extra that is missing here is an error.
EXTRAS = {
    "acp": "import toolloop.acp",
    "cli": "import toolloop._cli.run",
    "postgres": "from toolloop.stores import PostgresStore; PostgresStore('postgresql://host/db').close()",
    "agui": "import toolloop.agui",
    "dbos": "import toolloop.dbos",
    "inbox": "from toolloop.inbox import inbox_app; from toolloop import Inbox; import uvicorn",
    "mcp": "import toolloop.tools.mcp",
    "otel": "import opentelemetry.trace; import toolloop.otel",
    "prices": "from toolloop.prices import known_prices; assert known_prices().has('claude-opus-4-1')",
    "schema": "import jsonschema; from toolloop import sub_loop",
    "sign": "import cryptography; from toolloop.inbox import export_trail",
}


def run(*command: object) -> None:
    """Run a command, and end with its code if it fails."""
    print("+", *(str(part) for part in command if "\n" not in str(part)), flush=True)
    subprocess.run([str(part) for part in command], cwd=PLACE, check=True)  # noqa: S603 - our own


def environment(name: str, requirement: str) -> Path:
    """Install a requirement in an empty environment, and return its interpreter."""
    folder = PLACE / name
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement)
    return python


def main() -> None:
    """Build, check, install, use."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if unknown := project["optional-dependencies"].keys() ^ EXTRAS.keys():
        sys.exit(f"scripts/package.py: EXTRAS and pyproject.toml differ in {', '.join(sorted(unknown))}")
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", PLACE / "dist", ROOT)
    (wheel,) = (PLACE / "dist").glob("*.whl")
    (sdist,) = (PLACE / "dist").glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    for name, requirement in {"from-wheel": wheel, "from-sdist": sdist}.items():
        python = environment(name, str(requirement))
        run(python, "-W", "error", "-c", USE)
        run(python, "-m", "toolloop", "--version")
    if "--extras" in sys.argv[1:]:
        for extra, use in EXTRAS.items():
            run(environment(f"extra-{extra}", f"{wheel}[{extra}]"), "-W", "error", "-c", use)


if __name__ == "__main__":
    main()
