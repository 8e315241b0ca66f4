"""The docs cannot rot: every Python block runs, every link leads somewhere, every generated part is fresh.

The blocks of a page run in order, in one module. `Anthropic()` talks to a `FakeMessagesAPI` over HTTP, for the SDK
reads the address from the environment. The page `docs/howto/usage.md` has its preparations and checks in
`tests/docs/cells/howto/usage.py`. A cell of this file names the section, and the number of the block if it is not the
first:

    # %% before "Ask the model"
    fake(reply("Hello"))          # further answers of the API; all of them must be used up by the end of the page
    keys("y")                     # lines that input() reads

    # %% after "Ask the model" 2
    assert doc.answer == "Hello"

A cell sees the example as `doc` and the fake API as `api`. Where a block has comments `# -> text`, these are, line by
line, exactly what it prints. A program for another library is a `py` block, which does not run.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import anthropic
import pytest

from scripts import docs
from scripts.typecheck import HIDDEN, PAGES, hidden_file, parts
from tests.kit.warm_python import run
from toolloop import testing
from toolloop.testing import FakeMessagesAPI

ROOT = Path(__file__).parents[3]
_SAYS = re.compile(r"# -> (.*)$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]\n]*\]\((?P<target>[^)\s]+)\)")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def title(page: Path) -> str:
    return str(page.relative_to(ROOT))


PYTHON_PAGES = [page for page in PAGES if "\n```python\n" in page.read_text(encoding="utf-8")]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[anthropic.Anthropic]]:
    """The clients that an example opens; examples may leave closing to the end of the process."""
    clients: list[anthropic.Anthropic] = []
    original = anthropic.Anthropic.__init__

    def remember(self: anthropic.Anthropic, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        clients.append(self)

    monkeypatch.setattr(anthropic.Anthropic, "__init__", remember)
    yield clients
    for client in clients:
        client.close()


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """An empty folder to run in, no proxy, and a keyboard to type lines on."""
    monkeypatch.chdir(tmp_path)
    for name in _PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)

    def keys(*lines: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))

    return keys


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=title)
def test_every_python_block_runs_and_prints_what_it_says(
    page: Path, monkeypatch: pytest.MonkeyPatch, opened: list[anthropic.Anthropic], desk: Callable[..., None]
) -> None:
    """The blocks of a page run in order, for real, over HTTP."""
    answers: list[Any] = []
    doc = ModuleType("doc")
    monkeypatch.setitem(sys.modules, "doc", doc)
    with FakeMessagesAPI(lambda _: answers.pop(0)) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "no-key-is-needed")
        hidden = {
            **{name: getattr(testing, name) for name in vars(testing)["__all__"]},
            "api": api,
            "doc": doc,
            "fake": lambda *more: answers.extend(more),
            "keys": desk,
            "Path": Path,
        }
        for part in parts(page):
            code = compile("\n" * (part.line - 1) + part.code, str(part.file), "exec")
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(code, hidden if part.is_hidden else doc.__dict__)
            if says := _SAYS.findall(part.code):
                assert says == printed.getvalue().splitlines(), f"{title(page)}, line {part.line}"
        assert answers == [], f"{title(page)}: answers that no request asked for"
        assert [request.refusal for request in api.requests if request.refusal] == []


def test_hidden_code_is_beside_the_tests() -> None:
    """A page reads well as Markdown: its preparations are in tests/docs/cells, each file for a page."""
    for page in PAGES:
        found = re.search(r"^<!-- test$", page.read_text(encoding="utf-8"), re.MULTILINE)
        place = f'{title(hidden_file(page))}, under a line # %% before "the heading of the section"'
        assert not found, f"{title(page)}: move the code of the comment <!-- test --> to {place}"
    assert set(HIDDEN.rglob("*.py")) <= {hidden_file(page) for page in PYTHON_PAGES}


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_within_the_repository_leads_somewhere() -> None:
    """Files that are linked to exist, and so do the headings."""
    for page in PAGES:
        for found in _LINK.finditer(page.read_text(encoding="utf-8")):
            path, _, anchor = found["target"].partition("#")
            if path.startswith(("http:", "https:")):
                continue
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{title(page)} links to {found['target']}"
            if anchor:
                assert anchor in anchors(target), f"{title(page)} links to {found['target']}"


def test_the_places_that_the_design_names_exist() -> None:
    """Each row of "Where to look" has a file of the package and a function, class or constant in it."""
    section = (ROOT / "docs" / "design.md").read_text(encoding="utf-8").partition("\n## Where to look\n")[2]
    rows = re.findall(r"^\| [A-Z][^|]+ \| (.+) \|$", section, re.MULTILINE)
    assert rows
    for row in rows:
        found = re.fullmatch(r"`(?P<file>[\w/]+)\.py: (?P<name>[\w.]+)`", row)
        assert found, row
        body = ast.parse((ROOT / "src" / "toolloop" / f"{found['file']}.py").read_text(encoding="utf-8")).body
        for name in found["name"].split("."):
            place = next((node for node in body if name in names_of(node)), None)
            assert place, f"{row}: {name} is not defined there"
            body = getattr(place, "body", [])


def names_of(node: ast.stmt) -> list[str]:
    """The names that a statement defines."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    """Once, in `nav` of mkdocs.yml; the files at the top of the repository are there under the names of the site."""
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    tops = ["index.md", "changelog.md", "contributing.md", "security.md"]
    pages = [title(page).removeprefix("docs/") for page in PAGES if page.parent != ROOT]
    assert sorted(re.findall(r"[\w./-]+\.md$", nav, re.MULTILINE)) == sorted([*tops, *pages])


@pytest.mark.deep  # `make lint` checks it
def test_the_generated_parts_are_fresh(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`make docs` would change nothing. Here, because this process has all modules that the pages describe."""
    monkeypatch.setattr(sys, "argv", ["scripts.docs", "--check"])
    assert (docs.main(), capsys.readouterr().err) == (0, "")


@pytest.mark.deep
def test_a_stale_part_is_found_and_named_and_written_again(tmp_path: Path) -> None:
    """`--check` fails, says which file is stale, and changes nothing; without it the file is mended."""
    for page in PAGES:
        copy = tmp_path / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(page.read_text(encoding="utf-8"))
    stale = tmp_path / "docs" / "stop-reasons.md"
    fresh = stale.read_text(encoding="utf-8")
    stale.write_text(fresh.replace("| `tool_use` |", "| `tool_abuse` |"))
    broken = stale.read_text(encoding="utf-8")

    checked = run_script(tmp_path, "--check")
    assert checked.returncode == 1
    assert "docs/stop-reasons.md" in checked.stderr
    assert "docs/concepts.md" not in checked.stderr
    assert broken == stale.read_text(encoding="utf-8")

    assert run_script(tmp_path).returncode == 0
    assert fresh == stale.read_text(encoding="utf-8")


def run_script(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(["-m", "scripts.docs", "--root", str(root), *arguments], cwd=ROOT)
