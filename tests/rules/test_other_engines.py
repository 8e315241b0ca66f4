"""The policies of the page that ask other engines: Open Policy Agent over HTTP, and Cedar."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from tests.rules.support import FAY, Payment
from toolloop import Approve, Ask, Deny, PolicyView, ToolCall

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "who-may-decide.md"


def policy(name: str, **more: Any) -> Any:
    """A policy of the page."""
    blocks = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (code,) = [block for block in blocks if f"def {name}(" in block]
    names = {each.__name__: each for each in (Approve, Ask, Deny, PolicyView, ToolCall)} | more
    exec(code, names)
    return names[name]


@contextmanager
def an_agent(decide: Any) -> Iterator[str]:
    """A server that answers as Open Policy Agent does."""

    class Agent(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            assert self.path == "/v1/data/toolloop/decision"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(decide(asked["input"])).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Agent)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_open_policy_agent_decides() -> None:
    """Allow and deny; without a result, or without the server, the call waits."""
    answers = {5: {"result": "allow"}, 600: {"result": "deny"}, 50: {}}
    with an_agent(lambda asked: answers[asked["input"]["amount"]]) as address:
        opa = policy("opa", httpx2=httpx2, OPA=address)
        assert Payment(opa, {"to": "ana", "amount": 5}, needs_approval=True).drive()
        assert not Payment(opa).drive(FAY)
        waiting = Payment(opa, {"to": "ana", "amount": 50})
        assert (waiting.drive(), waiting.call.demands[0].rule, waiting.approve(FAY)) == (False, "opa", True)
    gone = Payment(policy("opa", httpx2=httpx2, OPA=address), {"to": "ana", "amount": 5})
    assert (gone.drive(), gone.call.reason, gone.approve(FAY)) == (False, "the policy raised ConnectError", True)


def test_the_rule_of_the_page_decides() -> None:
    """Evaluated by another implementation of Rego than that of Open Policy Agent."""
    regopy = pytest.importorskip("regopy", reason="needs Rego: pip install regopy")
    (rule,) = re.findall(r"^```rego\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    rego = regopy.Interpreter()
    rego.add_module("toolloop", rule)

    def decide(asked: dict[str, Any]) -> dict[str, Any]:
        rego.set_input(asked)
        (found,) = rego.query("data.toolloop.decision").results
        return {"result": found.expressions[0]}

    with an_agent(decide) as address:
        opa = policy("opa", httpx2=httpx2, OPA=address)
        assert Payment(opa, {"to": "ana", "amount": 50}, needs_approval=True).drive()
        assert not Payment(opa, {"to": "ana", "amount": 501}).drive(FAY)
        waiting = Payment(opa, {"to": "ana", "amount": 51})
        assert (waiting.drive(), waiting.call.demands[0].rule, waiting.approve(FAY)) == (False, "opa", True)


def test_cedar_decides() -> None:
    """What it does not permit waits."""
    cedarpy = pytest.importorskip("cedarpy", reason="needs Cedar: pip install cedarpy")
    cedar = policy("cedar", cedarpy=cedarpy)

    def judge(name: str, euros: float) -> Any:
        return cedar(SimpleNamespace(name=name, effective_input={"euros": euros}), None)

    assert [judge("refund", 50.0), judge("other", 5.0)] == [None, Ask(rule="cedar")]
    assert judge("refund", 50.01) == Ask(rule="cedar")
