"""A script up to the answer to its first request: `python -m tests.measured.benchmarks.starting create|toolloop URL`.

It prints the seconds of CPU that the process has taken, imports included.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from anthropic import Anthropic

from tests.measured.benchmarks import scenario


def main(name: str, url: str) -> None:
    """Ask once: with the SDK's own `create`, or with a loop."""
    client = Anthropic(base_url=url, api_key="key")
    if name == "create":
        asked: Any = {**scenario.params(1), "tools": [scenario.ADD]}
        client.messages.create(**asked)
    else:
        from toolloop import ToolLoopHandle, tool  # noqa: PLC0415 - it is measured

        ToolLoopHandle(client, params=scenario.params(1), tools=[tool(scenario.add)]).run().unwrap()
    sys.stdout.write(str(time.process_time()))


if __name__ == "__main__":
    main(*sys.argv[1:])
