"""Check, repair and split histories, and estimate their tokens."""

from toolloop._messages.check import check as check
from toolloop._messages.models import (
    binds_thinking as binds_thinking,
    takes_prefill as takes_prefill,
    takes_system_messages as takes_system_messages,
)
from toolloop._messages.repair import (
    NO_WORDS as NO_WORDS,
    NOT_RUN as NOT_RUN,
    Change as Change,
    Repaired as Repaired,
    repair as repair,
)
from toolloop._messages.rounds import (
    open_code_calls as open_code_calls,
    open_server_calls as open_server_calls,
    rounds as rounds,
)
from toolloop._messages.rules import RULES as RULES, Level as Level, Problem as Problem, Rule as Rule
from toolloop._public import export as _export
from toolloop.compaction.tokens import estimate_tokens as estimate_tokens

_export(globals())
