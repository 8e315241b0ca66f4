"""How the property tests run, and what the tests counted, brought together from all processes that ran some."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

from tests.kit import counted, own_threads, postgres

# A disk takes milliseconds to confirm a write, and these tests make tens of thousands; no power cut is among them. So
# their files are in memory, where there is enough of it. Whoever sets TMPDIR has them where they want.
_MEMORY = Path("/dev/shm")
_ENOUGH = 2 << 30  # bytes
if "TMPDIR" not in os.environ and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ENOUGH:
    os.environ["TMPDIR"] = str(_MEMORY)
    tempfile.tempdir = None

# Every connection is plain HTTP to this machine, and a client takes 40 ms to load certificates. This folder has none.
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)
os.environ.pop("SSL_CERT_FILE", None)

# An example may be the whole life of a loop, and a busy machine takes its time over it: a deadline says nothing here.
# `make test` draws the same examples each time, so that it judges a change and not its luck; `make deep` draws others.
settings.register_profile("quick", deadline=None, max_examples=12, derandomize=True)
settings.register_profile("deep", deadline=None, max_examples=500)
# To reach every line takes fewer examples than to find what is wrong.
settings.register_profile("lines", deadline=None, max_examples=25)
# A failing example shows that a mutant was noticed. It is not read, so it is neither made smaller nor explained.
_NO_SHRINKING = (Phase.explicit, Phase.generate)
settings.register_profile("mutants", deadline=None, max_examples=25, phases=_NO_SHRINKING, database=None)
settings.load_profile("quick")


# What the collection makes lives to the end: nothing of it is garbage, so no test has it looked through again.
gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Each process compiles its part of the tests first: in a fresh clone, no file is compiled by all of them."""
    worker, count = os.environ.get("PYTEST_XDIST_WORKER"), os.environ.get("PYTEST_XDIST_WORKER_COUNT")
    if worker is not None and count is not None:
        given = [session.config.rootpath / each.partition("::")[0] for each in session.config.args]
        asked = [each for each in Path(__file__).parent.rglob("test_*.py") if {each, *each.parents} & {*given}]
        for path in sorted(asked)[int(worker.removeprefix("gw")) :: int(count)]:
            with suppress(Exception, pytest.skip.Exception):  # the collection meets it again, and reports it
                import_module(".".join(path.relative_to(Path(__file__).parents[1]).with_suffix("").parts))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


# The files that take longest start first, so that no process works alone at the end.
_FIRST = (
    "test_demo.py",
    "test_interrupts.py",
    "test_attacks.py",
    "test_docs.py",
    "test_values.py",
    "test_page_in_chromium.py",
    "test_page_pointer.py",
    "test_read_back.py",
    "test_same_work.py",
    "test_review.py",
    "test_killed.py",
    "test_who_may_start.py",
    "test_whole_loop.py",
    "test_assistant.py",
    "test_chat_service.py",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Half as many again as there are cores: for a third of its time, a test waits for a process or a database."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + cores // 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in _FIRST)


def pytest_runtest_setup() -> None:
    own_threads.begin_test()


def pytest_sessionfinish(session: pytest.Session) -> None:
    postgres.leave_shared_server()
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["counted"] = counted.read_counts()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A process of `pytest-xdist` is over."""
    counted.hear(getattr(node, "workeroutput", {}).get("counted", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for section, counts in sorted(counted.COUNTS.items()):
        terminalreporter.section(f"{section}: {sum(counts.values())}")
        for what, count in sorted(counts.items(), key=lambda item: (item[1], item[0])):
            terminalreporter.write_line(f"{count:7} {what}")
