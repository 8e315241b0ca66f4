"""What the models differ in, as far as a history can tell (messages-api.md, rules 10, 21, 29, 31, 35)."""

from __future__ import annotations

import re

from toolloop.core.freezing import frozen

_NAMES = ("fable", "mythos", "opus", "sonnet", "haiku")
_NEWEST = (99, 0)
# Before there were families, the number followed at once.
_OLD = re.compile(r"claude-(\d|instant)")


@frozen
class Model:
    """One model.

    Args:
        name: its family: `opus`, `sonnet`, …, or `""` for one that nobody has heard of.
        version: major and minor number; an unknown one counts as the newest.

    """

    name: str
    version: tuple[int, int]

    @property
    def _above(self) -> bool:
        return self.name in {"fable", "mythos"}

    @property
    def takes_prefill(self) -> bool:
        """Whether the last message may be an assistant's."""
        return not self._above and self.version <= (4, 5)

    @property
    def takes_system_messages(self) -> bool:
        """Whether a `system` message may stand inside a conversation."""
        least = {"fable": (5, 0), "mythos": (5, 0), "opus": (4, 8)}.get(self.name, (5, 5))
        return self.version >= least

    @property
    def binds_thinking(self) -> bool:
        """Whether a thinking block is bound to all that came before it."""
        return self.version >= ((5, 1) if self._above else (5, 5))

    @property
    def takes_manual_thinking(self) -> bool:
        """Whether `thinking.type` may be `enabled`."""
        return self.version < (4, 7)

    @property
    def takes_adaptive_thinking(self) -> bool:
        """Whether `thinking.type` may be `adaptive`."""
        return self._above or self.version > (4, 5)

    @property
    def most_images(self) -> int:
        """How many images a request may have: fewer where the context is of 200,000 tokens."""
        return 600 if self.version >= (4, 6) else 100

    def may_disable_thinking(self, effort: str | None) -> bool:
        """Whether `thinking.type` may be `disabled`."""
        opus_5 = self.name == "opus" and self.version == (5, 0)
        return not (self._above or (opus_5 and effort in {"xhigh", "max"}))

    def takes_effort(self, effort: str) -> bool:
        """Whether it knows this level of effort."""
        return effort != "xhigh" or self.version >= (4, 7)


def exists(name: str) -> bool:
    """Whether this could be a model: `claude-` and a family or a number. `claude-x` is nobody."""
    return name.startswith("claude-") and (any(known in name for known in _NAMES) or bool(re.search(r"\d", name)))


def model(name: str) -> Model:
    """The model of a name such as `claude-opus-4-5-20251101`. What is not known behaves like the newest."""
    family = next((known for known in _NAMES if known in name), "")
    # A date is no version: numbers of one or two digits only.
    numbers = [int(digits) for digits in re.findall(r"(?<!\d)\d{1,2}(?!\d)", name)]
    if family == "mythos" and "preview" in name:
        return Model(family, (4, 6))
    if not numbers or not (family or _OLD.match(name)):
        return Model(family, _NEWEST)
    return Model(family, (numbers[0], numbers[1] if len(numbers) > 1 else 0))
