"""`toolloop serve`: who gets in on this machine, and that nobody does from another one without a login."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.inbox.support import desk
from toolloop._cli.run import run
from toolloop.inbox.page.serving import is_loopback


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """Serve the file of a folder at a free port, and give the address that is printed."""
    command = [sys.executable, "-m", "toolloop", "serve", str(folder / "loops.db"), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        found = re.fullmatch(r"Approve at (\S+)\n", process.stdout.readline())
        assert found, process.stderr.read()
        yield found[1]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert (process.returncode, errors.strip()) == (130, "")


def test_the_link_in_the_terminal_lets_one_person_in(tmp_path: Path) -> None:
    """The token becomes a cookie that no script reads; without it there is nothing to see; then one decides."""
    found = desk("sqlite", tmp_path)
    found.drive()
    with serving(tmp_path, "--by", "ana") as link, httpx2.Client(trust_env=False) as http:
        parts = urlsplit(link)
        assert parts.hostname == "127.0.0.1"
        base = f"http://{parts.netloc}"
        assert http.get(base).status_code == 403
        assert http.get(f"{base}/?token=guessed").status_code == 403
        assert http.post(f"{base}/decide?{parts.query}").status_code == 403
        entered = http.get(link)
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        assert {"HttpOnly", "SameSite=lax"} <= set(entered.headers["set-cookie"].split("; "))
        assert entered.headers["referrer-policy"] == "no-referrer"
        page = http.get(base).text
        names = ("csrf", "loop", "call", "digest")
        form = {name: re.findall(rf'name="{name}" value="([^"]*)"', page)[0] for name in names}
        with http.stream("GET", f"{base}/events") as stream:  # an open page does not hold up the end
            assert next(stream.iter_lines()) == "retry: 1000"
            assert http.post(f"{base}/decide", data=form | {"kind": "approve"}).status_code == 303
    assert [(each.kind, each.by) for each in found.inbox.trail("loop")] == [("approve", "ana")]


def test_a_function_names_the_person(tmp_path: Path) -> None:
    """Of a module in the current folder; there is no token then."""
    desk("sqlite", tmp_path).drive()
    (tmp_path / "mylogin.py").write_text("async def who(request):\n    return request.headers.get('x-user')\n")
    with serving(tmp_path, "--who", "mylogin:who", "--host", "0.0.0.0") as link, httpx2.Client(trust_env=False) as http:
        at = f"http://127.0.0.1:{urlsplit(link).port}/"
        assert "token" not in link
        assert http.get(at).status_code == 403
        assert "deciding as <strong>bo</strong>" in http.get(at, headers={"x-user": "bo"}).text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--host", "0.0.0.0"), "can be reached from other machines"),
        (("--host", "::"), "can be reached from other machines"),
        (("--host", "example.org"), "can be reached from other machines"),
        (("--who", "nomodule:who"), "cannot import"),
        (("--who", "json:"), "cannot import"),
        (("--who", "json:__name__"), "is not a function"),
    ],
)
def test_it_refuses_to_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], said: str
) -> None:
    """Where everybody could decide, or the function is not there: exit code 2."""
    desk("sqlite", tmp_path).drive()
    assert run(["serve", str(tmp_path / "loops.db"), *options]) == 2
    assert said in capsys.readouterr().err


def test_loopback_is_this_machine_alone() -> None:
    """Names other than localhost may be anything."""
    assert [is_loopback(host) for host in ("localhost", "127.0.0.1", "127.8.8.8", "::1")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", "")] == [False] * 5


@pytest.mark.parametrize(
    ("missing", "code", "said"),
    [
        ("click", "from toolloop._cli import main; main()", "pip install 'toolloop[cli]'"),
        ("starlette", "from toolloop.inbox import inbox_app", "pip install 'toolloop[inbox]'"),
    ],
)
def test_an_error_names_the_extra_that_is_missing(missing: str, code: str, said: str) -> None:
    """In the command and in the page."""
    program = f"import sys; sys.modules[{missing!r}] = None; {code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert said in done.stderr
