"""An example as a person meets it: a program at a terminal, in front of the fake API."""

from __future__ import annotations

import html
import importlib.util
import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import httpx2

from tests.docs.examples.terminal import Terminal
from tests.inbox.page.visitor import ACTION, FORM, HIDDEN
from tests.kit.warm_python import Program
from toolloop.testing import FakeMessagesAPI

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
SECONDS = 60.0  # a deadline, not a wait
_LEFT_OUT = {"NO_COLOR", "COLUMNS", "ANTHROPIC_API_KEY", "http_proxy", "https_proxy", "all_proxy"}


def environment(api: FakeMessagesAPI, **more: str) -> dict[str, str]:
    """What a program sees around it: the API's address, and no proxy."""
    kept = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT | set(map(str.upper, _LEFT_OUT))}
    told = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "none", "TERM": "xterm", "PYTHONWARNINGS": "error"}
    return kept | told | more


def at_terminal(name: str, api: FakeMessagesAPI, *, folder: Path | None = None, **more: str) -> Terminal:
    """An example, at a terminal, in a folder."""
    return Terminal([str(EXAMPLES / name)], environment(api, **more), folder)


def imported(name: str) -> ModuleType:
    """An example as a module, without what it does as a program."""
    found = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert found
    assert found.loader
    module = sys.modules[name] = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def order_asked(terminal: Terminal) -> int:
    """The order that the program asks about, once it does."""
    terminal.expect("}? [y/n] ")
    return int(terminal.screen.rpartition("{'order': ")[2].partition("}")[0])


@contextmanager
def served(name: str, api: FakeMessagesAPI, folder: Path, *, processes: int, **more: str) -> Iterator[str]:
    """An example under uvicorn, with this folder as its own; its address. It ends by SIGTERM.

    The socket listens before uvicorn does, so a request that comes early waits.

    Args:
        name: of the example.
        api: what it talks to.
        folder: its own.
        processes: how many serve at this address.
        more: of its environment.

    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        fd, port = listening.fileno(), listening.getsockname()[1]
        command = ["-m", "uvicorn", "--app-dir", str(EXAMPLES), "--fd", str(fd), "--log-level", "error"]
        program = [*command, "--timeout-graceful-shutdown", "1", f"{name}:app"]
        around = environment(api, PYTHONWARNINGS="", **more)
        running = [Program(program, env=around, cwd=folder, pass_fds=[fd]) for _ in range(processes)]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        for process in running:
            process.terminate()
        try:
            for process in running:
                process.wait(SECONDS)
        finally:
            for process in running:
                process.kill()
                process.wait()


def follow(browser: httpx2.Client, page: httpx2.Response, link: str) -> httpx2.Response:
    """Open the page of a link, as a browser without scripts does."""
    (address, *_) = re.findall(link, page.text)
    return browser.get(page.url.join(html.unescape(address)))


def press(browser: httpx2.Client, page: httpx2.Response, kind: str, **typed: str) -> httpx2.Response:
    """Press a button of the page, and return the page that follows."""
    form = next(found for found in FORM.finditer(page.text) if f'name="kind" value="{kind}"' in found["body"])
    hidden = {each["name"]: html.unescape(each["value"]) for each in HIDDEN.finditer(form["body"])}
    (action,) = ACTION.findall(form["head"])
    sent = hidden | typed | {"kind": kind}
    answer = browser.post(page.url.join(action), data=sent, headers={"sec-fetch-site": "same-origin"})
    assert answer.status_code == 200
    return answer
