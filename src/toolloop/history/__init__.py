"""Histories: what the API takes, how to mend one that it would refuse, and where to cut one."""

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
