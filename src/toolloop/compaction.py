"""Strategies that make a history shorter: for `LoopConfig.compaction`, on a handle, or on a plain list of messages."""

from toolloop.handle.summarizing import Summarize
from toolloop.history.compaction import SummaryFailed
from toolloop.history.dropping import DropRounds
from toolloop.history.masking import MaskResults
from toolloop.history.summarizing import SUMMARY_PROMPT

__all__ = ["SUMMARY_PROMPT", "DropRounds", "MaskResults", "Summarize", "SummaryFailed"]
