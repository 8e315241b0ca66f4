"""All commands. Each module adds its own to the group."""

from toolloop._cli import auditing, deciding, looking, loops, managing, restored, reviewing, rules, statistics, watching
from toolloop._cli.group import toolloop

__all__ = [
    "auditing",
    "deciding",
    "looking",
    "loops",
    "managing",
    "restored",
    "reviewing",
    "rules",
    "statistics",
    "toolloop",
    "watching",
]
