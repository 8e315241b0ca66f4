"""The tool with which the model reads long and masked results: see `LoopConfig.keep_results`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from attrs import evolve, field, frozen

from toolloop.machine.values.long_results import READ_RESULT, KeptResults, read_part
from toolloop.machine.values.setup import KeepResults
from toolloop.tools.function import FunctionIntake, Tool
from toolloop.tools.signature import read_signature


@frozen(eq=False, repr=False, slots=False)
class ResultReader(Tool[..., str]):
    """The tool that reads results of one loop. Only a loop can run it.

    Attributes:
        most: the number of characters that it returns at most.

    """

    most: int = field(kw_only=True)

    def bind_results(self, results: KeptResults) -> ResultReader:
        """Return the tool that reads these results."""
        return evolve(self, function=partial(_read, results, self.most))


def make_reader(keep: KeepResults) -> ResultReader:
    """Return the tool, before it knows the results."""
    most = keep.head + keep.tail
    description = f"Read a part of a long result that was left out, at most {most} characters at once."
    intake = FunctionIntake(READ_RESULT, read_signature(_define_shape, {}), description, {})
    return ResultReader(
        READ_RESULT,
        description,
        _define_shape,
        needs_approval=False,
        effect="pure",
        is_async=False,
        intake=intake,
        most=most,
    )


def _define_shape(
    name: Annotated[str, "The name from the note in the result."],
    start: Annotated[int, "The index of the first character, from 0 on."],
    length: Annotated[int, "The number of characters."],
) -> str:
    """Define the schema by its signature; `bind_results` puts the function in its place that knows the results."""
    raise TypeError(f"read_result({name!r}, {start}, {length}) is only for a loop. See LoopConfig.keep_results")


def _read(results: KeptResults, most: int, *, name: str, start: int, length: int) -> str:
    return read_part(results, name, start, min(length, most))
