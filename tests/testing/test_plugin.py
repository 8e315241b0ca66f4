"""The pytest plugin, as a project of its own meets it."""

from __future__ import annotations

import os
from pathlib import Path

from scripts.typecheck import ROOT, parts
from tests.docs.layout.test_imports import loaded_by
from tests.kit.warm_python import run

PAGE = ROOT / "docs" / "howto" / "testing.md"

PROJECT = '''
import os
import anthropic
import anyio
import pytest
from toolloop import Approve, AsyncToolLoopHandle, ToolLoopHandle, tool
from toolloop.testing import reply

PARAMS = {"model": "claude-opus-5-5", "max_tokens": 99, "messages": [{"role": "user", "content": "Pay"}]}


@tool(needs_approval=True)
def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"


def program():
    with anthropic.Anthropic() as client:
        return ToolLoopHandle(client, params=PARAMS, tools=[pay]).run(lambda turn: turn.approve_all()).text


def test_the_api(fake_api):
    api = fake_api([reply(calls=[("pay", {"euros": 5})]), reply("Done")])
    assert program() == "Done"
    assert [request.path for request in api.requests] == ["/v1/messages"] * 2


def test_it_is_closed(fake_api):
    assert "ANTHROPIC_BASE_URL" not in os.environ
    assert fake_api(lambda body: reply(body["model"])).client() is not None


def test_a_provider_and_a_store(scripted_provider, loop_store):
    provider = scripted_provider([reply(calls=[("pay", {"euros": 5})]), reply("Done")])
    with ToolLoopHandle.open(loop_store, "pay", provider, tools=[pay], params=PARAMS) as handle:
        handle.run()
    with ToolLoopHandle.open(loop_store, "pay", provider, tools=[pay]) as handle:
        handle.decide({call: Approve() for call in handle.pending})
        assert handle.run().text == "Done"


def test_async(async_scripted_provider):
    handle = AsyncToolLoopHandle(async_scripted_provider([reply("Done")]), params=PARAMS, tools=[pay])
    assert anyio.run(handle.run).text == "Done"


def test_that_leaves_an_answer(scripted_provider):
    scripted_provider([reply("Done")])
'''


def test_its_fixtures_serve_a_project(tmp_path: Path) -> None:
    """A real API, providers and a store; an answer that is left fails the test. The tests on the page pass."""
    (tmp_path / "test_project.py").write_text(PROJECT)
    blocks = [part.code for part in parts(PAGE)]
    (tests_of_page,) = [code for code in blocks if "def test_" in code]
    (tmp_path / "test_page.py").write_text("from __future__ import annotations\n" + blocks[0] + tests_of_page)
    command = ["-m", "pytest", "-q", "-p", "toolloop._pytest", "-p", "no:cacheprovider", "-W", "error", str(tmp_path)]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    environment.pop("ANTHROPIC_BASE_URL", None)
    ran = run(command, cwd=tmp_path, env=environment)
    assert ran.stdout.splitlines()[-1].startswith("7 passed, 1 error"), ran.stdout
    assert "ERROR at teardown of test_that_leaves_an_answer" in ran.stdout
    assert "no request asked for the last answers of the script (1)" in ran.stdout


def test_it_loads_no_part_of_the_kit_at_the_start_of_pytest() -> None:
    """Every test run of an environment with toolloop imports it."""
    loaded = loaded_by("import pytest, toolloop._pytest")
    assert {name for name in loaded if name.startswith("toolloop")} == {
        *("toolloop", "toolloop._names", "toolloop._pytest"),
    }
    assert loaded & {"anthropic", "pydantic", "attrs", "attr", "sqlite3"} == set()
