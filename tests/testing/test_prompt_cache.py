"""The fake API's prompt cache, asked by the client of the SDK."""

from __future__ import annotations

from typing import Any

from tests.kit.each import each
from toolloop.testing import FakeMessagesAPI, reply

LIFETIMES = {"5m": 300, "1h": 3600}
LONG_TEXT = "a rule of the house. " * 400


class Asking:
    """Sends requests, and returns how many tokens each wrote and read."""

    def __init__(self, api: FakeMessagesAPI) -> None:
        self.client = api.client()

    def send(self, *blocks: Any, mark: Any = None, **more: Any) -> tuple[int, int]:
        top = {} if mark is None else {"cache_control": {"type": "ephemeral", "ttl": mark}}
        said: Any = [{"role": "user", "content": [{"type": "text", "text": text} for text in blocks]}]
        asked: dict[str, Any] = {"model": "claude-opus-5-5", "max_tokens": 9, "messages": said, **top, **more}
        usage = self.client.messages.create(**asked).usage
        return usage.cache_creation_input_tokens or 0, usage.cache_read_input_tokens or 0


@each("ttl", LIFETIMES)
def test_an_entry_lives_from_its_last_use(ttl: str) -> None:
    """Each read keeps it for its lifetime again."""
    now = [0.0]
    with FakeMessagesAPI(lambda _: reply("x"), clock=lambda: now[0]) as api:
        ask = Asking(api)
        written, read = ask.send(LONG_TEXT, mark=ttl)
        assert written > 1024
        assert read == 0
        for _ in range(2):
            now[0] += LIFETIMES[ttl] - 1
            assert ask.send(LONG_TEXT, mark=ttl) == (0, written)
        now[0] += LIFETIMES[ttl]
        assert ask.send(LONG_TEXT, mark=ttl) == (written, 0)


def test_only_a_marked_beginning_is_read() -> None:
    """Not without a mark, of another model, after another text, or if it is short."""
    with FakeMessagesAPI(lambda _: reply("x")) as api:
        ask = Asking(api)
        written, _ = ask.send(LONG_TEXT, mark="5m")
        assert ask.send(LONG_TEXT) == (0, 0)
        assert ask.send(LONG_TEXT, mark="5m", model="claude-sonnet-5") == (written, 0)
        assert ask.send("a", LONG_TEXT, mark="5m")[1] == 0
        assert ask.send("a", mark="5m") == (0, 0)
        assert ask.send(LONG_TEXT, "b", mark="5m")[1] == written


def test_an_entry_is_found_19_blocks_before_a_mark() -> None:
    """The API checks 20 places: that of the mark, and 19 before it."""
    with FakeMessagesAPI(lambda _: reply("x")) as api:
        ask = Asking(api)
        written, _ = ask.send(LONG_TEXT, mark="5m")
        assert ask.send(LONG_TEXT, *"a" * 20, mark="5m")[1] == 0
        assert ask.send(LONG_TEXT, *"b" * 19, mark="5m")[1] == written


def test_the_usage_of_the_script_stands() -> None:
    """The cache fills in only what the script leaves out."""
    with FakeMessagesAPI([reply("x", usage={"input_tokens": 7, "output_tokens": 1})]) as api:
        assert Asking(api).send(LONG_TEXT, mark="5m") == (0, 0)
