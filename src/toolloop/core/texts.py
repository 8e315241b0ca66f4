"""What the model is told when a call has no result of its own: distinct, and true. One constant each."""

from __future__ import annotations

from attrs import frozen


@frozen
class Texts:
    """The texts the model sees. Each is a format string; the names in braces are filled in.

    Give another one as `LoopConfig(texts=Texts(denied="..."))`. None may be blank: the API refuses an error without a
    text.
    """

    denied: str = "This call was denied and did not run. Reason: {reason}"
    not_run: str = "This call was not run: the loop stopped before it started."
    cancelled: str = "This call was cancelled while it ran. It may have had effects."
    uncertain: str = "This call was started, and nobody saw it end. It may have had effects. Note: {reason}"
    unknown_tool: str = "There is no tool named {name!r}. The tools are: {known}."
    invalid_input: str = "The input does not fit the schema of {name}, so the call did not run. {problems}"
    edited: str = "Note: the call {id} ({name}) ran with an input that was edited by a person: {input}"
