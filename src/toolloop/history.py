"""Check, repair and split histories, and estimate their tokens."""

from toolloop._messages.check import check
from toolloop._messages.models import binds_thinking, takes_prefill, takes_system_messages
from toolloop._messages.repair import NO_WORDS, NOT_RUN, Change, Repaired, repair
from toolloop._messages.rounds import open_code_calls, open_server_calls, rounds
from toolloop._messages.rules import RULES, Level, Problem, Rule
from toolloop.compaction.tokens import estimate_tokens

__all__ = [
    "NOT_RUN",
    "NO_WORDS",
    "RULES",
    "Change",
    "Level",
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
