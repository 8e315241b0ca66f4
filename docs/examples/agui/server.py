"""An agent behind AG-UI, and a small page that shows it.

    pip install 'toolloop[agui]' uvicorn
    uvicorn --app-dir docs/examples agui.server:app

Then open http://127.0.0.1:8000. It needs ANTHROPIC_API_KEY. Each visitor acts as the same person: give `who=` before
other machines can reach the server.
"""

import os
from pathlib import Path

from anthropic import AsyncAnthropic
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from toolloop import SqliteStore, tool
from toolloop.agui import agui_app

ORDERS = {901: "a lamp, 40 euros, delivered on Monday", 902: "two chairs, 180 euros, lost on the way"}


@tool(effect="pure")
def find_order(order: int) -> str:
    """Look up an order."""
    return ORDERS.get(order, "there is no such order")


@tool(needs_approval=True)
def refund(order: int, euros: float, note: str = "") -> str:
    """Pay money back.

    Args:
        order: the number of the order
        euros: how much
        note: for the customer

    """
    return f"{euros:.2f} euros for order {order} are on their way. {note}".strip()


agent = agui_app(
    SqliteStore(os.environ.get("LOOPS", "agui.db")),
    AsyncAnthropic(),
    [find_order, refund],
    params={"model": "claude-opus-5-5", "max_tokens": 2048, "system": "You help the clerks of a shop. Be brief."},
    front_end_tools=["get_time_zone"],  # the page runs it
    anybody="clerk",
)
page = StaticFiles(directory=Path(__file__).with_name("page"), html=True)
app = Starlette(routes=[Mount("/agent", agent), Mount("/", page)], lifespan=agent.router.lifespan_context)
