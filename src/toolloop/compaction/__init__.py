"""Strategies that shorten a history: for `LoopConfig.compaction`, or on a plain list of messages.

Not here: changes of a loop; a strategy gets messages and returns messages.
"""

from toolloop._public import export as _export
from toolloop.compaction.drop_rounds import DropRounds as DropRounds
from toolloop.compaction.mask_results import MaskResults as MaskResults
from toolloop.compaction.strategy import Edit as Edit, Strategy as Strategy, SummaryFailed as SummaryFailed
from toolloop.compaction.summarize import SUMMARY_PROMPT as SUMMARY_PROMPT, Summarize as Summarize, Summary as Summary
from toolloop.compaction.tokens import Outline as Outline

_export(globals())
