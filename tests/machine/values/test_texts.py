"""The texts that the model gets: never empty."""

from __future__ import annotations

import pytest
from attrs import fields

from toolloop.machine.values.setup import Texts
from toolloop.machine.values.texts import PLACES, fill_text


@pytest.mark.parametrize("which", [part.name for part in fields(Texts)])
def test_each_text_names_its_own_places(which: str) -> None:
    """The usual text is filled in with them and nothing else, and says something."""
    assert fill_text(Texts(), which, **PLACES[which]).strip()


@pytest.mark.parametrize("denied", ["{reason}", " {reason} ", "{reason[3]}", "{reason.nope}", "{nobody}", "{"])
def test_a_text_that_comes_out_blank_or_broken_is_said_as_usual(denied: str) -> None:
    """The API takes no error without a text."""
    assert fill_text(Texts(denied=denied), "denied", reason="") == Texts().denied.format(reason="")


def test_another_text_is_said_with_its_places_filled_in() -> None:
    """That is what it is for."""
    assert fill_text(Texts(denied="Not allowed: {reason}"), "denied", reason="late") == "Not allowed: late"
