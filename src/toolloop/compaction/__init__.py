"""Strategies that shorten a history: for `LoopConfig.compaction`, or on a plain list of messages."""

from toolloop.compaction.drop_rounds import DropRounds
from toolloop.compaction.mask_results import MaskResults
from toolloop.compaction.strategy import Edit, Strategy, SummaryFailed
from toolloop.compaction.summarize import SUMMARY_PROMPT, Summarize, Summary
from toolloop.compaction.tokens import Outline

__all__ = [
    "SUMMARY_PROMPT",
    "DropRounds",
    "Edit",
    "MaskResults",
    "Outline",
    "Strategy",
    "Summarize",
    "Summary",
    "SummaryFailed",
]
