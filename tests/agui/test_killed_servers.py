"""Servers that are killed, two servers over one store, and loops that are stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.agui.site import NO, YES, Node, Site, open_site, texts
from tests.kit.concurrency import run_async
from tests.kit.fork_server import ForkServer
from toolloop import AsyncToolLoopHandle
from toolloop.testing import AsyncScriptedProvider


@pytest.fixture(scope="module")
def site(forks: ForkServer, node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server that may be killed. Each test has a thread of its own."""
    with open_site(forks, node, tmp_path_factory.mktemp("agui")) as site:
        yield site


def test_a_server_that_is_killed_keeps_the_question(site: Site) -> None:
    """Another client of the same person answers it, with the id that the first one had."""
    ana, before = site.client("crash"), site.ran()
    first = ana.run("write it")
    site.restart()
    other = site.client("crash")
    second = other.run()
    assert second.pending == first.pending
    assert [each["id"] for each in second.messages[1:]] == [each["id"] for each in first.messages[1:]]
    done = other.answer(YES)
    assert site.ran()[len(before) :] == ["tu_1_a write_file a.txt hello"]
    assert done.said[-1] == ("assistant", "All done now.")


def test_a_server_that_is_killed_in_a_tool_leaves_its_call_uncertain(site: Site) -> None:
    """A person says that it runs again."""
    ana = site.client("uncertain")
    ana.say("hold please")
    running = ana.begin()
    site.server.hear("held")
    site.restart()
    assert site.run_of(running).refused == "terminated"
    other = site.client("uncertain")
    asked = other.run()
    (interrupt,) = asked.pending
    assert interrupt["reason"] == "toolloop:uncertain"
    assert {"rerun", "answer", "approved"} <= interrupt["responseSchema"]["properties"].keys()
    rerun = other.begin(resume=[{"interruptId": interrupt["id"], "status": "resolved", "payload": {"rerun": True}}])
    site.server.hear("held")
    site.server.go()
    assert texts(site.run_of(rerun).messages, "tool") == ["held"]


def test_two_servers_over_one_store_run_a_call_once(site: Site) -> None:
    """One answer stands; both clients have it, and go on."""
    (second, url), before = site.another(), site.ran()
    ana, other = site.client("both"), site.client("both", url=url)
    ana.run("write it")
    other.run()
    answers = [each.begin(resume=[{"interruptId": each.pending[0]["id"], "status": "resolved", "payload": payload}])
               for each, payload in ((ana, YES), (other, NO))]  # fmt: skip
    runs = [site.run_of(each) for each in answers]
    assert runs[0].said == runs[1].said
    assert [run.pending for run in runs] == [[], []]
    (stands,) = [each for each in site.inbox.trail(site.loop_of("both")) if each.path]
    assert len(site.ran()) - len(before) == (stands.kind == "approve")
    assert sum(bool(run.notes) for run in runs) == 1
    second.kill()


@pytest.mark.parametrize("how", ["stop", "leave"])
def test_a_stop_ends_a_run_as_cancelled(forks: ForkServer, node: Node, tmp_path: Path, how: str) -> None:
    """By its address, or because the client leaves, if the application says so."""
    with open_site(forks, node, tmp_path, on_disconnect="stop") as site:
        ana, headers = site.client("stop"), {"x-user": "ana", "content-type": "application/json"}
        ana.say("hold please")
        running = ana.begin()
        site.server.hear("held")
        if how == "leave":
            ana.leave()
        else:
            with httpx2.Client(trust_env=False) as http:
                assert http.post(f"{site.url}never/stop", headers=headers).status_code == 404
                assert http.post(f"{site.url}stop/stop", headers=headers).status_code == 200
        site.inbox.wait(site.loop_of("stop"), "ended", timeout=30)
        ended = site.run_of(running) if how == "stop" else ana.run()
        assert ended.end["outcome"] == {"type": "cancelled"}
        assert ana.run("hello").said[-1] == ("assistant", "You said: hello")


def test_a_failed_loop_tells_the_error_and_goes_on_when_it_is_retried(site: Site) -> None:
    """A run retries nothing by itself."""
    ana, headers = site.client("failed"), {"x-user": "ana", "content-type": "application/json"}
    assert ana.run("refuse please").errors == ["failed"]
    requests = len(site.api.requests)
    assert ana.run().errors == ["failed"]
    assert len(site.api.requests) == requests
    with httpx2.Client(trust_env=False) as http:
        assert http.post(f"{site.url}failed/retry", headers=headers).status_code == 200
    assert ana.run().said[-1] == ("assistant", "You said: refuse please")
    assert ana.run("hello").said[-1] == ("assistant", "You said: hello")


def test_threads_that_persons_share(forks: ForkServer, node: Node, tmp_path: Path) -> None:
    """They exist already, and are loops of this application. A note names what a person may not do."""
    with open_site(forks, node, tmp_path, is_shared=True) as site:
        assert site.client("made-up").run("hello").errors == ["not_found"]
        assert site.store.list() == []
        make_thread(site, "shared")
        make_thread(site, "other", agui="another")
        assert site.client("other").run("hello").errors == ["not_found"]
        asked = site.client("shared", "guest").run("pay bo")
        assert (asked.pending, asked.end["outcome"]) == ([], {"type": "success"})
        ana, fay = site.client("shared", "ana"), site.client("shared", "fay")
        (interrupt,) = ana.run().pending
        assert interrupt["responseSchema"]["properties"]["approved"]["enum"] == [False]
        forged = site.client("shared", "guest").run(resume=[{"interruptId": interrupt["id"], "status": "cancelled"}])
        assert "not allowed" in forged.notes[0]["why"]
        fay.run()
        fay.answer(YES)
        assert site.ran() == ["tu_1_a pay bo"]


def make_thread(site: Site, thread: str, **metadata: str) -> None:
    """Create a loop for a thread."""
    params = {"model": "claude-opus-5-5", "max_tokens": 1024, "messages": []}

    async def make() -> None:
        provider = AsyncScriptedProvider([])
        opening = AsyncToolLoopHandle.open(
            site.store, thread, provider, params=params, metadata={"agui": "agui", **metadata}
        )
        async with opening:
            pass

    run_async("asyncio", make)
