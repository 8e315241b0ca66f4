"""What of an exception is a cancellation, under asyncio and trio."""

from __future__ import annotations


def is_cancelling_task() -> bool:
    """Return whether asyncio itself cancels this task; anyio knows of its own cancellations, and of trio's."""
    import asyncio  # noqa: PLC0415 - anyio has loaded it, or trio runs

    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0


def without_cancellation(error: BaseException, cancelled: type[BaseException]) -> BaseException | None:
    """Return what of an exception, or of a group, is no cancellation."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(cancelled)[1]
    return None if isinstance(error, cancelled) else error


def only_error(errors: BaseExceptionGroup[BaseException], cancelled: type[BaseException]) -> BaseException:
    """Return what is raised for a group: what is no cancellation, alone if it is one exception."""
    rest: BaseException = without_cancellation(errors, cancelled) or errors
    while isinstance(rest, BaseExceptionGroup) and len(rest.exceptions) == 1:
        rest = rest.exceptions[0]
    return rest
