"""The code of an earlier commit, for tests in which two versions meet."""

from __future__ import annotations

import subprocess
import zipfile
from io import BytesIO
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def write_earlier_source(commit: str, folder: Path) -> Path | None:
    """Write the code of a commit into a folder, and return that of its package; None: no such commit."""
    # A tar file is extracted without a warning only by Python 3.11.4 and later.
    command = ["git", "archive", "--format=zip", commit, "src"]
    found = subprocess.run(command, cwd=_ROOT, capture_output=True, check=False)
    if found.returncode:
        return None
    with zipfile.ZipFile(BytesIO(found.stdout)) as archive:
        archive.extractall(folder)
    return folder / "src"
