"""A store in PostgreSQL that can be stopped at each of its writes: before it begins, and before its answer is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from toolloop.stores import Lease, PostgresStore

if TYPE_CHECKING:
    from tests.promises.processes.programs import Worker


class HeldPostgres(PostgresStore):
    def __init__(self, url: str, part: Worker) -> None:
        super().__init__(url)
        self._part = part

    def _held(self, write: Callable[..., Any], *args: Any, **options: Any) -> Any:
        number = self._part.write()
        done = write(*args, **options)
        self._part.stand(at="in a write", number=number)
        return done

    def create(self, *args: Any, **options: Any) -> int:
        return int(self._held(super().create, *args, **options))

    def append(self, *args: Any, **options: Any) -> int:
        rev = int(self._held(super().append, *args, **options))
        self._part.stored(args[1])
        return rev

    def acquire(self, *args: Any, **options: Any) -> Lease:
        lease: Lease = self._held(super().acquire, *args, **options)
        return lease

    def release(self, *args: Any, **options: Any) -> None:
        self._held(super().release, *args, **options)
