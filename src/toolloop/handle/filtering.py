"""Result filters: what a tool returned is looked at before it is recorded.

A generator yields each question as a callable with its arguments and is sent the answer, as for policies, so that one
driver can call and the other await.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from typing import Any

from attrs import evolve

from toolloop.core.jsontext import decode, encode
from toolloop.core.values import Outcome, Result
from toolloop.handle.judging import Question
from toolloop.handle.tooling import Job, sendable
from toolloop.handle.views import ToolCall
from toolloop.handle.watching import ResultFiltered

LOG = logging.getLogger("toolloop.tools")

Filter = Callable[[ToolCall, Any], Any]


def filtering(
    filters: Sequence[Filter], job: Job, result: Result, tell: Callable[[ResultFiltered], None]
) -> Generator[Question, Any, Result]:
    """Ask each filter in turn; each sees what the one before it left.

    Args:
        filters: of the configuration.
        job: the run.
        result: what came of it. Only what a tool returned is filtered, no error.
        tell: told of each change.

    """
    if result.outcome is not Outcome.RETURNED:
        return result
    iteration = job.context.iteration
    call = ToolCall(job.call, job.setup, iteration)
    for each in filters:
        name = type(each).__name__
        try:
            name = str(getattr(each, "__name__", name))
            said = yield each, (call, decode(result.content))
            if said is None:
                continue
            content = encode(sendable(job, said))
        except Exception:
            LOG.exception("a result filter failed: %s", name, extra={"tool": call.name, "call_id": call.id})
            continue
        if content != result.content:
            sizes = len(result.content), len(content)
            tell(ResultFiltered(iteration, call.id, call.name, name, *sizes, path=job.path))
            job.result = result = evolve(result, content=content)  # if a later filter is cut off, this stands
    return result
