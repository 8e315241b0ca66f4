"""Approval rules as data: `Rules`, a policy that is read from a TOML file or a list of mappings.

Not here: a language. A policy that needs more than these keys is a function.
"""

from toolloop._public import export as _export
from toolloop.rules.policy import RuleResult as RuleResult, Rules as Rules
from toolloop.rules.reading import RuleAction as RuleAction

_export(globals())
