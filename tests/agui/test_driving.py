"""The worker of an application: a fault of it ends no program, and the next request starts it again."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest

from toolloop.agui.threads import Driver


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_worker_that_fails_is_logged_and_started_again(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    """Under trio, the task belongs to the event loop, which an exception would end."""

    class Failing:
        """What a worker is to the driver, with a fault."""

        async def run(self, _stop: anyio.Event) -> None:
            raise ValueError("a fault")

    worker: Any = Failing()

    async def main() -> None:
        driver = Driver(worker)
        for _ in range(2):
            driver.start()
            await driver.stop()

    with caplog.at_level(logging.ERROR, "toolloop.agui"):
        anyio.run(main, backend=backend)
    assert [record.message for record in caplog.records] == ["the worker failed; the next request starts it again"] * 2
