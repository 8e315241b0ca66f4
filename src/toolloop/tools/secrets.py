"""Hide the secret values of an input from the persons who see a call. The model, the tool and the journal have them."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection, Mapping

from toolloop.machine.values.jsontext import JSON, canonical

SecretKey = Callable[[], str]
_SHOWS_END = 16  # characters of a value whose last two are shown; they say too much of a shorter one
_DIGITS = 8


def no_key() -> str:
    """Return no key: then hidden values have no digits by which two of them differ."""
    return ""


def hide_secrets(given: Mapping[str, JSON], names: Collection[str], key: SecretKey) -> dict[str, JSON]:
    """Return an input with its secret values replaced by descriptions.

    Args:
        given: the input.
        names: the names of the secret parameters.
        key: returns the key of the digits by which two values differ. It is called only if there is a value to hide.

    """
    return {name: _hidden(name, value, key()) if _hides(names, name, value) else value for name, value in given.items()}


def restore_secrets(
    edited: Mapping[str, JSON], given: Mapping[str, JSON], names: Collection[str], key: SecretKey
) -> dict[str, JSON]:
    """Return an edited input in which each secret that came back as it was shown has its value again."""

    def is_unchanged(name: str, value: JSON) -> bool:
        if name not in given or not _hides(names, name, given[name]):
            return False
        return value in (_hidden(name, given[name], key()), _hidden(name, given[name], ""))

    return {name: given[name] if is_unchanged(name, value) else value for name, value in edited.items()}


def _hides(names: Collection[str], name: str, value: JSON) -> bool:
    return name in names and value is not None


def _hidden(name: str, value: JSON, key: str) -> str:
    """Describe a value: "hidden, 40 characters, ends in 9f, fingerprint 1c0b7a35"."""
    text = value if isinstance(value, str) else canonical(value)
    parts = ["hidden", f"{len(text)} characters"]
    if len(text) >= _SHOWS_END:
        parts.append(f"ends in {text[-2:]}")
    if key:
        digest = hmac.digest(key.encode(), canonical([name, value]).encode("utf-8", "surrogatepass"), "sha256")
        parts.append(f"fingerprint {digest.hex()[:_DIGITS]}")
    return ", ".join(parts)
