"""Cases of a test that run one after the other, as one item. A failure names its case."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any


def each(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with each case, as `pytest.mark.parametrize` does, but as one item.

    Each case has a folder of its own, a clear log, and nothing patched. Use it where the cases change no other fixture.

    Args:
        names: the name of the parameter, or several names.
        cases: the values of the parameter; tuples of values, if there are several names.

    """
    parameters = [names] if isinstance(names, str) else list(names)
    known = [(case,) if isinstance(names, str) else tuple(case) for case in cases]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def every(**fixtures: Any) -> None:
            for number, values in enumerate(known):
                case = dict(zip(parameters, values, strict=True))
                try:
                    test(**_freshen(fixtures, number), **case)
                except BaseException as error:
                    error.add_note(f"the case: {case}")
                    raise

        whole = inspect.signature(test)
        left = [rest for name, rest in whole.parameters.items() if name not in parameters]
        every.__signature__ = whole.replace(parameters=left)  # type: ignore[attr-defined]  # pytest reads it
        return every

    return decorate


def _freshen(fixtures: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the fixtures as a further case finds them."""
    if "caplog" in fixtures:
        fixtures["caplog"].clear()
    if "monkeypatch" in fixtures:
        fixtures["monkeypatch"].undo()
    if "tmp_path" in fixtures:
        folder = fixtures["tmp_path"] / str(number)
        folder.mkdir()
        return fixtures | {"tmp_path": folder}
    return fixtures
