"""The conformance suite for stores."""

from __future__ import annotations

from collections.abc import Callable

from toolloop.stores.protocol import Store
from toolloop.testing.store_lease_rules import LEASE_RULES
from toolloop.testing.store_rules import JOURNAL_RULES, bad_arguments_are_refused

_RULES = (*JOURNAL_RULES, *LEASE_RULES, bad_arguments_are_refused)


def check_store(make_store: Callable[[], Store]) -> None:
    """Check a store against the rules of `toolloop.stores.Store`.

    Everything in the store is deleted: give one for tests. It takes a few seconds, and needs no test framework.

    Args:
        make_store: opens the store. It is called many times. Each call may open what the calls before it wrote; then
            that must still be there. Or it may give a new, empty store each time, as `MemoryStore` does.

    Raises:
        AssertionError: the store breaks a rule. The message names the rule, the expected value and the actual one.

    """
    for rule in _RULES:
        says = f"{rule.__name__.replace('_', ' ')}. {rule.__doc__}"
        try:
            rule(make_store)
        except AssertionError as error:
            raise AssertionError(f"broken rule: {says} {error}") from error
        except Exception as error:
            raise AssertionError(f"broken rule: {says} The store raised {type(error).__name__}: {error}") from error
