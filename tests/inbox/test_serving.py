"""`toolloop serve`: who gets in on this machine, and that from another one each visitor needs a login."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.inbox.support import desk
from tests.kit.warm_python import Piped
from toolloop._cli.run import run
from toolloop.inbox.page.serving import is_loopback


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[str, int]]:
    """Serve the file of a folder at a free port, and give the address that is printed, and the process."""
    command = ["-m", "toolloop", "serve", "--store", str(folder / "loops.db"), "--port", "0", *options]
    with Piped(command, cwd=folder, env={**os.environ, "LOGNAME": "ana"}) as process:
        found = re.fullmatch(r"Approve at (\S+)\n", process.stdout.readline())
        assert found, process.stderr.read()
        yield found[1], process.program.pid
        process.program.send_signal(signal.SIGINT)
        line = "toolloop: interrupted. What was stored before stands; nothing is half done."
        assert (process.program.wait(), process.stderr.read().strip()) == (130, line)


def test_the_link_in_the_terminal_lets_one_person_in(tmp_path: Path) -> None:
    """The token is exchanged for a cookie of one path that no script reads. Then one decides; nothing is in the log."""
    found = desk("sqlite", tmp_path)
    found.drive()
    with serving(tmp_path) as (link, _), httpx2.Client(trust_env=False) as http:
        parts = urlsplit(link)
        assert parts.hostname == "127.0.0.1"
        base, token = f"http://{parts.netloc}", parts.query.removeprefix("token=")
        for path in ("/", "/decide", "/changes", "/loop?id=loop", "/?token=guessed", "/lost/?token=guessed", "/lost/"):
            refused = http.get(base + path)
            assert (refused.status_code, "Sign in" in refused.text) == (403, True)
        assert http.post(f"{base}/decide?{parts.query}").status_code == 403
        entered = http.get(link)
        assert entered.status_code == 200
        cookie, *rules = entered.headers["set-cookie"].split("; ")
        path = next(rule for rule in rules if rule.startswith("Path=")).removeprefix("Path=")
        assert {"HttpOnly", "SameSite=strict"} <= set(rules)
        assert len(path) > 16
        assert f'<meta http-equiv="refresh" content="0; url={path}/">' in entered.text
        assert token not in cookie
        assert entered.headers["referrer-policy"] == "no-referrer"
        assert all(
            path not in http.get(f"{base}{each}").text for each in ("/", "/?token=guessed", "/lost/", "/static/")
        )
        assert http.get(f"{base}{path}", follow_redirects=False).headers["location"] == f"{path}/"
        page = http.get(f"{base}{path}/").text
        names = ("csrf", "call", "digest")
        form = {name: re.findall(rf'name="{name}" value="([^"]*)"', page)[0] for name in names}
        http.cookies.clear()
        assert http.get(f"{base}{path}/").status_code == 403
        assert http.post(f"{base}{path}/decide", data=form | {"kind": "approve"}).status_code == 403
        assert found.inbox.trail("loop") == ()
        pasted = http.get(base, params={"token": link})
        assert pasted.status_code == 200
        assert http.post(f"{base}{path}/decide", data=form | {"kind": "approve"}).status_code == 303
        signed = found.inbox.link("loop", "c2", base_url=base)
        http.cookies.clear()
        assert "<title>May pay run?" in http.get(signed).text
    assert [(each.kind, each.by) for each in found.inbox.trail("loop")] == [("approve", "ana")]


def test_a_function_names_the_person(tmp_path: Path) -> None:
    """Of a module in the current folder; there is no token then."""
    desk("sqlite", tmp_path).drive()
    (tmp_path / "mylogin.py").write_text("async def who(request):\n    return request.headers.get('x-user')\n")
    options = ("--who", "mylogin:who", "--host", "0.0.0.0")
    with serving(tmp_path, *options) as (link, _), httpx2.Client(trust_env=False) as http:
        at = f"http://127.0.0.1:{urlsplit(link).port}/"
        assert "token" not in link
        assert http.get(at).status_code == 403
        assert 'data-me="bo"' in http.get(at, headers={"x-user": "bo"}).text


def test_the_page_shows_what_a_file_of_rules_says_of_an_edit(tmp_path: Path) -> None:
    """The file of the workers; a wrong one is an error at once, with the rule and the key."""
    desk("sqlite", tmp_path).drive()
    (tmp_path / "mylogin.py").write_text("def who(request):\n    return 'ana'\n")
    file = tmp_path / "approvals.toml"
    file.write_text('[[rule]]\nname = "large"\ndo = "ask"\nneed = 2\nmatch = {euros = {above = 6}}\n')
    options = ("--who", "mylogin:who", "--rules", str(file))
    with serving(tmp_path, *options) as (link, _), httpx2.Client(base_url=link, trust_env=False) as http:
        page = http.get("", params={"call": "loop..c1", "do": "edit"}).text
        form = dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', page))
        typed = {"kind": "edit", "field.1": "ana", "field.2": "7"}
        shown = http.post("decide", data=form | typed, headers={"sec-fetch-site": "same-origin"}).text
        assert "asks for 2 approvals" in shown
    file.write_text('[[rule]]\nname = "large"\ndo = "maybe"\n')
    assert run(["serve", "--store", str(tmp_path / "loops.db"), "--rules", str(file)]) == 2


def test_only_the_configured_host_names_are_answered(tmp_path: Path) -> None:
    """Also with the right cookie; another name leads to 421, and to nothing of the page."""
    desk("sqlite", tmp_path).drive()
    (tmp_path / "mylogin.py").write_text("def who(request):\n    return 'ana'\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ("--who", "mylogin:who", "--public-url", "https://Approve.example.org/calls", "--port", str(port))
    with serving(tmp_path, *options) as (link, _), httpx2.Client(trust_env=False) as http:
        assert link == "https://Approve.example.org/calls/"
        at = f"http://127.0.0.1:{port}/"

        def status(host: str, **headers: str) -> int:
            return http.get(at, headers={"host": host} | headers).status_code

        known = (
            "localhost",
            f"localhost:{port}",
            "127.0.0.1:1",
            "[::1]",
            "approve.example.org",
            "APPROVE.example.org:443",
        )
        assert [status(host) for host in known] == [200] * len(known)
        other = ("evil.example", "localhost.evil.example", f"evil.example:{port}", "", "127.0.0.1@evil.example", "[::1")
        assert [status(host) for host in other] == [421] * len(other)
        assert status("evil.example", **{"x-forwarded-host": "localhost"}) == 421  # not of a proxy that it was told
        for path in ("", "calls/"):  # a proxy removes the prefix, or not
            assert 'action="/calls/decide"' in http.get(at + path, headers={"host": "localhost"}).text


def test_a_proxy_says_how_visitors_see_the_page(tmp_path: Path) -> None:
    """Only a configured host; the host that it says is judged, too."""
    desk("sqlite", tmp_path).drive()
    (tmp_path / "mylogin.py").write_text(
        "def who(request):\n    return f'{request.client.host} {request.url.scheme}'\n"
    )
    seen = {"x-forwarded-prefix": "/calls/", "x-forwarded-proto": "https", "x-forwarded-for": "evil, 10.1.2.3"}
    for proxy, name, action in (
        ("127.0.0.1", "10.1.2.3 https", "/calls/decide"),
        ("10.0.0.1", "127.0.0.1 http", "/decide"),
    ):
        with (
            serving(tmp_path, "--who", "mylogin:who", "--proxy", proxy) as (at, _),
            httpx2.Client(trust_env=False) as http,
        ):
            page = http.get(at, headers=seen).text
            assert f'data-me="{name}"' in page
            assert f'action="{action}"' in page
            trusts = proxy == "127.0.0.1"
            assert http.get(at, headers={"x-forwarded-host": "evil.example"}).status_code == (421 if trusts else 200)
            assert http.get(at, headers={"x-forwarded-prefix": "//evil.example/<"}).status_code == (
                400 if trusts else 200
            )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--host", "0.0.0.0"), "can be reached from other machines"),
        (("--host", "::"), "can be reached from other machines"),
        (("--host", "example.org"), "can be reached from other machines"),
        (("--public-url", "example.org"), "expected a URL"),
        (("--public-url", "ftp://example.org"), "expected a URL"),
        (("--root-path", "approvals"), "expected a prefix"),
        (("--root-path", "/approvals/"), "expected a prefix"),
        (("--root-path", "//evil.example/x y"), "expected a prefix"),
        (("--proxy", "proxy.example.org"), "does not appear to be"),
        (("--who", "nomodule:who"), "cannot import"),
        (("--who", "json:"), "cannot import"),
        (("--who", "json:__name__"), "is not a function"),
    ],
)
def test_it_refuses_to_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], said: str
) -> None:
    """If every visitor could decide, or the function is not there: exit code 2."""
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
