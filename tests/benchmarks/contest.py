"""Who takes part: toolloop, what it is measured against, and the peers."""

from __future__ import annotations

from attrs import frozen


@frozen
class Contestant:
    """One way to hold the conversation of `scenario`.

    Attributes:
        name: its module in `contestants`.
        label: its name in the report.
        is_peer: whether it runs in the peers' environment, and not in the project's.
        runs: how often it is measured in a whole run; those that take minutes, less often.
        is_counted: whether its instructions are counted, too.

    """

    name: str
    label: str
    is_peer: bool = False
    runs: int = 5
    is_counted: bool = False


CONTESTANTS = (
    Contestant("bare_post", "bare post of ready bytes", is_counted=True),
    Contestant("floor", "floor", is_counted=True),
    Contestant("client_post", "loop over the SDK client's post", is_counted=True),
    Contestant("toolloop_handle", "toolloop", is_counted=True),
    Contestant("toolloop_async", "toolloop, async handle", is_counted=True),
    Contestant("sdk_loop", "hand-written SDK loop", runs=3, is_counted=True),
    Contestant("sdk_runner_threads", "SDK runner with threads", runs=3),
    Contestant("sdk_runner", "SDK runner without threads", is_counted=True),
    Contestant("sdk_async_runner", "SDK async runner without threads", runs=3),
    Contestant("pydantic_ai_agent", "pydantic-ai", is_peer=True, runs=3),
    Contestant("langgraph_agent", "LangGraph", is_peer=True, runs=2),
)
LABELS = {contestant.name: contestant.label for contestant in CONTESTANTS}
