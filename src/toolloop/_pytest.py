"""The pytest plugin: fixtures from the test kit.

pytest imports this module at every start, so the kit itself is imported by the first fixture that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from toolloop.providers.scripted import AsyncScript, AsyncScriptedProvider, Script, ScriptedProvider
    from toolloop.stores.sqlite.store import SqliteStore
    from toolloop.testing import APIScript, FakeMessagesAPI


@pytest.fixture
def fake_api(
    monkeypatch: pytest.MonkeyPatch, _scripts: Callable[[Any], Any]
) -> Iterator[Callable[..., FakeMessagesAPI]]:
    """Return a function that starts a `FakeMessagesAPI` with a script. Its arguments are those of the class.

    `Anthropic()` without arguments talks to it: `ANTHROPIC_BASE_URL` and `ANTHROPIC_API_KEY` are set. The test fails if
    an answer of the script is left at its end.
    """
    from toolloop.testing import FakeMessagesAPI  # noqa: PLC0415 - not at every start of pytest

    started: list[FakeMessagesAPI] = []

    def start(script: APIScript, **options: Any) -> FakeMessagesAPI:
        api = FakeMessagesAPI(_scripts(script), **options)
        started.append(api)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "no-key-is-needed")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        return api

    yield start
    for api in started:
        api.close()


@pytest.fixture
def scripted_provider(_scripts: Callable[[Any], Any]) -> Callable[[Script], ScriptedProvider]:
    """Return a function that makes a `ScriptedProvider`. The test fails if an answer is left at its end."""
    from toolloop.providers.scripted import ScriptedProvider  # noqa: PLC0415 - likewise

    return lambda script: ScriptedProvider(_scripts(script))


@pytest.fixture
def async_scripted_provider(_scripts: Callable[[Any], Any]) -> Callable[[AsyncScript], AsyncScriptedProvider]:
    """Return a function that makes an `AsyncScriptedProvider`, for an `AsyncToolLoopHandle`."""
    from toolloop.providers.scripted import AsyncScriptedProvider  # noqa: PLC0415 - likewise

    return lambda script: AsyncScriptedProvider(_scripts(script))


@pytest.fixture
def loop_store(tmp_path: Path) -> Iterator[SqliteStore]:
    """Return an empty `SqliteStore`. Its file is in `tmp_path`, so other processes can open it, too."""
    from toolloop.stores.sqlite.store import SqliteStore  # noqa: PLC0415 - likewise

    store = SqliteStore(tmp_path / "loops.db")
    yield store
    store.close()


@pytest.fixture
def _scripts() -> Iterator[Callable[[Any], Any]]:
    """Take the scripts of a test, and fail it at its end if one has answers left. A function is passed on."""
    taken: list[Iterator[Any]] = []

    def take(script: Iterable[Any] | Callable[..., Any]) -> Any:
        if callable(script):
            return script
        taken.append(iter(list(script)))
        return taken[-1]

    yield take
    if left := [answer for answers in taken for answer in answers]:
        pytest.fail(
            f"no request asked for the last answers of the script ({len(left)}); the first of them is {left[0]!r}"
        )
