"""Histories: what the API takes, how to mend one that it would refuse, and where to cut one."""

# ruff: noqa: TC004 - what `__all__` names is imported by the door, when somebody asks for it
from typing import TYPE_CHECKING

from toolloop._doors import door

if TYPE_CHECKING:
    from toolloop.history.check import check
    from toolloop.history.models import binds_thinking, takes_prefill, takes_system_messages
    from toolloop.history.open_turns import open_code_calls, open_server_calls
    from toolloop.history.repair import NO_WORDS, NOT_RUN, Change, Repaired, repair
    from toolloop.history.rounds import rounds
    from toolloop.history.rules import RULES, Problem, Rule
    from toolloop.history.tokens import estimate_tokens

__all__ = [
    "NOT_RUN",
    "NO_WORDS",
    "RULES",
    "Change",
    "Problem",
    "Repaired",
    "Rule",
    "binds_thinking",
    "check",
    "estimate_tokens",
    "open_code_calls",
    "open_server_calls",
    "repair",
    "rounds",
    "takes_prefill",
    "takes_system_messages",
]

door(
    __name__,
    {
        "toolloop.history.check": ("check",),
        "toolloop.history.models": ("binds_thinking", "takes_prefill", "takes_system_messages"),
        "toolloop.history.open_turns": ("open_code_calls", "open_server_calls"),
        "toolloop.history.repair": ("NO_WORDS", "NOT_RUN", "Change", "Repaired", "repair"),
        "toolloop.history.rounds": ("rounds",),
        "toolloop.history.rules": ("RULES", "Problem", "Rule"),
        "toolloop.history.tokens": ("estimate_tokens",),
    },
)
