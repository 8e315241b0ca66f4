"""A refund desk: an agent proposes refunds, and the people of two groups decide by the rules in approvals.toml.

    pip install 'toolloop[inbox,prices]' httpx2
    python docs/examples/refund_desk.py                           # the worker, which pays
    uvicorn --app-dir docs/examples refund_desk:app               # the page, on which people decide
    python docs/examples/refund_desk.py sue "Order 17 came broken"    # a case of the clerk sue

It needs ANTHROPIC_API_KEY, BANK and CHAT (the addresses of a service that pays, and of a chat room), and a proxy that
logs people in and sets the two headers of `who`.
"""

import os
import sys
import uuid
from pathlib import Path

import httpx2
from anthropic import Anthropic
from starlette.requests import Request

from toolloop import Budget, LoopConfig, Person, SqliteStore, ToolCall, ToolLoopHandle, Worker, tool
from toolloop.inbox import InboxCall, inbox_app
from toolloop.prices import known_prices
from toolloop.rules import Rules
from toolloop.stores import StoredLoop

STORE = SqliteStore(os.environ.get("LOOPS", "loops.db"))
RULES = Rules.load(os.environ.get("RULES", Path(__file__).with_name("approvals.toml")))
CONFIG = LoopConfig(on_tool_call=RULES, prices=known_prices(), budget=Budget(cost=2.0))  # dollars a case
PARAMS = {"model": "claude-opus-5-5", "max_tokens": 2048, "system": "You help the clerks of a shop."}


@tool(needs_approval=True)  # where no rule matches
def refund(order: int, euros: float, account: str) -> str:
    """Pay money back."""
    paid = {"order": order, "euros": euros, "account": account}
    return httpx2.post(os.environ["BANK"], json=paid, timeout=60).raise_for_status().text


def who(request: Request) -> Person | None:
    """Return the person whom the proxy has logged in. It removes these headers from what browsers send."""
    name = request.headers.get("x-person")
    return Person(name, request.headers.get("x-groups", "").split()) if name else None


def sees(person: Person) -> list[dict[str, str]] | None:
    """Return which cases a person sees: finance all of them, a clerk those of the own desk."""
    return None if "finance" in person.groups else [{"desk": group} for group in person.groups]


def may(person: Person, action: str, _loop: StoredLoop, _call: ToolCall | None) -> bool:
    """Return whether a person may do something. Whose approvals count, the rules say."""
    return action in ("approve", "deny", "answer", "say", "rerun") or "finance" in person.groups


def tell(item: InboxCall) -> None:
    """Write to the chat room that a call waits, or still waits."""
    text = f"{item.metadata['owner']}'s case: {item.name} {item.gist}. {item.progress or 'It needs an approval'}."
    text = f"Reminder {item.reminder}: {text}" if item.reminder else text
    httpx2.post(os.environ["CHAT"], json={"text": text, "id": item.notification_id}, timeout=10).raise_for_status()


def begin(owner: str, text: str) -> str:
    """Store a new case, which a worker drives, and return its id."""
    loop_id, params = uuid.uuid4().hex, PARAMS | {"messages": [{"role": "user", "content": text}]}
    metadata = {"owner": owner, "desk": "support"}
    with ToolLoopHandle.open(
        STORE, loop_id, Anthropic(), tools=[refund], params=params, config=CONFIG, metadata=metadata
    ):
        return loop_id


app = inbox_app(STORE, who=who, may=may, sees=sees, rules=RULES)

if __name__ == "__main__":
    if sys.argv[1:]:
        print(begin(*sys.argv[1:]))
    else:
        Worker(STORE, Anthropic(), [refund], config=CONFIG, notify=tell).run()
