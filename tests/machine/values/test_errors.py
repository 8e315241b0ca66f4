"""The errors: whose they are, what they carry, and that they survive pickling."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime

import pytest

from toolloop import errors as e

EXAMPLES: tuple[e.ToolLoopError, ...] = (
    e.ToolLoopError("m", any="thing"),
    e.CallerError("m"),
    e.IllegalCommand("m", state="Ready", asked="stop()", allowed=("retry()",)),
    e.InvalidEdit("m", state="Waiting", asked="approve", allowed=("approve",)),
    e.UnknownCall("m", call="c", known=("d",)),
    e.DecisionConflict("m", call="c", decision="deny", by="ana", at=datetime(2030, 1, 1, tzinfo=UTC)),
    e.AlreadyDecided("m", call="c", decision=None, by=None, at=None),
    e.LinkUsed("m", call="c", decision="deny", by="ana", at=datetime(2030, 1, 1, tzinfo=UTC)),
    e.NotAllowed("m"),
    e.LinkExpired("m", at=datetime(2030, 1, 1, tzinfo=UTC)),
    e.BadLink("m"),
    e.UndecidedCalls("m", calls=("c",)),
    e.InvalidHistory("m", problems=("p",), messages=[{"role": "user"}]),
    e.BadTool("m", tool="look"),
    e.Drift("m", changes=("the model",)),
    e.OutsideError("m"),
    e.UnpricedModel("m", models=("a",)),
    e.ModelError("m", status=529, kind="overloaded_error", retryable=True, retry_after=2.0, request_id="req_1"),
    e.ProtocolError("m", retryable=True),
    e.StoreError("m"),
    e.LoopNotFound("m", loop_id="x"),
    e.Conflict("m", loop_id="x", owner="o", until=9.0, token=2),
    e.StaleRevision("m", loop_id="x", rev=7),
    e.UnreadableSnapshot("m", format=9),
    e.MaxDepthExceeded(3, 3),
)
CALLERS = {"IllegalCommand", "InvalidEdit", "UnknownCall", "DecisionConflict", "AlreadyDecided"} | {
    "UndecidedCalls",
    "InvalidHistory",
    "BadTool",
    "Drift",
    "BadLink",
    "LinkExpired",
    "LinkUsed",
    "NotAllowed",
    "UnpricedModel",
}
OUTSIDES = {
    "ModelError",
    "ProtocolError",
    "StoreError",
    "LoopNotFound",
    "Conflict",
    "StaleRevision",
    "UnreadableSnapshot",
}


def test_the_examples_are_all_of_them() -> None:
    """Every error of the module is in this file's examples."""
    defined = {kind for kind in vars(e).values() if isinstance(kind, type) and issubclass(kind, e.ToolLoopError)}
    assert {type(example) for example in EXAMPLES} == defined


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_and_copying(error: e.ToolLoopError) -> None:
    """The copy has the same class, message and parts."""
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert twin.args == error.args
        assert vars(twin) == vars(error)


def test_errors_are_split_by_who_must_act() -> None:
    """The caller's are `CallerError`, the world's are `OutsideError`; depth is neither."""
    kinds = {type(example) for example in EXAMPLES}
    assert {kind.__name__ for kind in kinds if issubclass(kind, e.CallerError)} == CALLERS | {"CallerError"}
    assert {kind.__name__ for kind in kinds if issubclass(kind, e.OutsideError)} == OUTSIDES | {"OutsideError"}


def test_parts_are_attributes() -> None:
    """What an error knows is read from it, not parsed out of its text."""
    error = e.ModelError("busy", status=529, retry_after=2.0)
    assert (error.status, error.retry_after, error.retryable, error.kind) == (529, 2.0, False, None)
    assert e.ProtocolError("odd").retryable is False


def test_depth_names_the_cause_and_the_remedy() -> None:
    """Where the loop is, what the limit is, and the field to change."""
    error = e.MaxDepthExceeded(4, 3)
    assert (error.current, error.limit) == (4, 3)
    assert "depth 4" in str(error)
    assert "max_depth" in str(error)
