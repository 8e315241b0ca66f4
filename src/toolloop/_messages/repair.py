"""Repair a history with as few changes as possible, so that the API accepts it.

It repairs violations of these rules: `unanswered-call`, `orphan-result`, `repeated-result`, `duplicate-call`,
`results-first`, `open-server-call`, `orphan-server-result`, `blank-text`, `empty-content`,
`empty-error-result`, `toolset-name`, `thinking-last`, and `system-place` if a user message follows.

Only the author of a history can repair these:

- invalid shapes, members and roles, and blocks of the wrong role;
- thinking without text and signature;
- content next to results of calls made by code, and content that a result cannot hold;
- too many cache marks;
- a system message at the start or directly after an assistant message;
- an empty history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, takewhile
from typing import Any, Final

from attrs import frozen

from toolloop._messages.check import check
from toolloop._messages.edits import BlockEdit, MessageEdit, MessageGroup, find_live_turns, take_apart, turns_of
from toolloop._messages.reading import SERVER_CALLS, THINKING, is_blank, is_server_result, kind_of
from toolloop._messages.rules import Problem
from toolloop._public import set_module

NOT_RUN: Final = "This call was not run."
#: The text for an error result without content.
NO_WORDS: Final = "The tool failed without a message."


@set_module("toolloop.history")
@frozen
class Change:
    """A change that `repair` made.

    Args:
        path: the position in the given list.
        rule: the id of the broken rule.
        what: a description of the change.

    """

    path: str
    rule: str
    what: str


@set_module("toolloop.history")
@frozen
class Repaired:
    """A repaired history.

    Args:
        messages: the history. Unchanged messages are the given objects.
        changes: the changes that were made.
        remaining: the errors that `check` still finds in `messages`.

    """

    messages: list[Any]
    changes: tuple[Change, ...]
    remaining: tuple[Problem, ...]


@set_module("toolloop.history")
def repair(messages: Sequence[Any]) -> Repaired:
    """Repair a history as far as possible without its author.

    The repair is deterministic. A valid or repaired history is not changed. The given list and messages are never
    modified.

    Args:
        messages: plain JSON values.

    Returns:
        The repaired history, the changes, and the errors that remain.

    """
    work = _Repair([take_apart(number, message) for number, message in enumerate(messages)])
    work.run()
    repaired = [edit.to_message() for edit in work.edits]
    remaining = tuple(problem for problem in check(repaired) if problem.level == "error")
    return Repaired(repaired, tuple(work.changes), remaining)


class _Repair:
    def __init__(self, edits: list[MessageEdit]) -> None:
        self.edits = edits
        self.changes: list[Change] = []

    def run(self) -> None:
        self._drop_blank_text()
        for edit in self.edits:
            self._repair_results(edit)
        self._settle(self._drop_invalid_blocks, self._move_system_messages, self._pair, self._name_toolsets)

    def _drop_invalid_blocks(self) -> None:
        """Drop blocks that would separate a call from its result."""
        self._settle(
            self._drop_repeated_calls,
            self._drop_server_calls,
            self._drop_server_results,
            self._drop_trailing_thinking,
        )

    def _settle(self, *steps: Callable[[], None]) -> None:
        """Repeat the steps until nothing changes: a dropped message makes its neighbors adjacent.

        Each step drops a block, answers a call or restores the order, so this ends.
        """
        done = -1
        while done < len(self.changes):
            done = len(self.changes)
            for step in (*steps, self._drop_empty_messages):
                step()

    def _note(self, path: str, rule: str, what: str) -> None:
        self.changes.append(Change(path, rule, what))

    def _take(self, edits: list[MessageEdit], unwanted: dict[BlockEdit, str], what: str = "dropped") -> None:
        """Drop blocks; `unwanted` maps each to the rule that it breaks."""
        for edit in edits:
            kept = [part for part in edit.parts if part not in unwanted]
            if len(kept) == len(edit.parts):
                continue
            for part in edit.parts:
                if part in unwanted:
                    self._note(part.path, unwanted[part], what)
            edit.set(kept)

    def _drop_blank_text(self) -> None:
        blank = {
            part: "blank-text"
            for edit in self.edits
            for part in edit.parts
            if part.kind == "text" and is_blank(part.block.get("text"))
        }
        self._take(self.edits, blank)
        for edit in self.edits:
            if edit.role == "system" and not edit.parts and edit.original.get("output_config"):
                edit.role = None  # now it only sets the output, and is legal anywhere

    def _repair_results(self, edit: MessageEdit) -> None:
        parts = [self._repair_result(part) if part.kind == "tool_result" else part for part in edit.parts]
        if any(new is not old for new, old in zip(parts, edit.parts, strict=True)):
            edit.set(parts)

    def _repair_result(self, part: BlockEdit) -> BlockEdit:
        content = part.block.get("content")
        if isinstance(content, list):
            kept = [inner for inner in content if not _is_blank_text(inner)]
            if len(kept) < len(content):
                self._note(part.path, "blank-text", "dropped blank text inside the result")
                part = BlockEdit(part.path, part.block | {"content": kept or ""})
        if part.block.get("is_error") is True and part.block.get("content") in (None, "", []):
            self._note(part.path, "empty-error-result", "added the text that the tool failed without a message")
            part = BlockEdit(part.path, part.block | {"content": NO_WORDS})
        return part

    def _drop_repeated_calls(self) -> None:
        for turn in find_live_turns(self.edits):
            first = set(_list_calls(turn).values()) if turn.role == "assistant" else set()
            repeated = {
                part: "duplicate-call"
                for _, part in turn.places
                if first and part.kind == "tool_use" and part.call is not None and part not in first
            }
            self._take(turn.edits, repeated)

    def _drop_trailing_thinking(self) -> None:
        trailing = {
            part: "thinking-last"
            for turn in turns_of(self.edits)
            if turn.role == "assistant"
            for _, part in takewhile(lambda place: place[1].kind in THINKING, reversed(turn.places))
        }
        self._take(self.edits, trailing)

    def _drop_empty_messages(self) -> None:
        gone: set[MessageEdit] = set()
        for turn in turns_of(self.edits):
            for edit in turn.edits:
                if edit.parts:
                    continue
                if edit.changed:
                    gone.add(edit)  # the change that emptied it is recorded
                else:
                    gone.add(edit)
                    self._note(edit.path, "empty-content", "dropped")
        self.edits = [edit for edit in self.edits if edit not in gone]

    def _move_system_messages(self) -> None:
        ordered: list[MessageEdit] = []
        held: list[MessageEdit] = []
        passed = 0
        for turn in turns_of(self.edits):
            if turn.role == "system":
                held += turn.edits
            elif turn.role == "user":
                ordered += turn.edits
                passed = len(held)
            else:
                ordered += [*self._note_moved(held, passed), *turn.edits]
                held, passed = [], 0
        ordered += self._note_moved(held, passed)
        # Edits without a role keep their positions.
        rest = iter(ordered)
        self.edits = [edit if edit.role is None else next(rest) for edit in self.edits]

    def _note_moved(self, held: list[MessageEdit], passed: int) -> list[MessageEdit]:
        for edit in held[:passed]:
            self._note(edit.path, "system-place", "moved after the next user message")
        return held

    def _pair(self) -> None:
        turns = find_live_turns(self.edits)
        answers: dict[MessageEdit, MessageEdit] = {}
        for number, turn in enumerate(turns):
            if turn.role == "user":
                before = turns[number - 1] if number and turns[number - 1].role == "assistant" else None
                self._repair_user_turn(turn, _list_calls(before))
            elif turn.role == "assistant" and (number + 1 == len(turns) or turns[number + 1].role != "user"):
                last = turn.edits[-1]
                if calls := list(_list_calls(turn).values()):
                    answers[last] = MessageEdit(
                        last.path, {"role": "user"}, "user", self._answer_not_run(calls), changed=True
                    )
        self.edits = [new for edit in self.edits for new in (edit, answers.get(edit)) if new is not None]

    def _answer_not_run(self, calls: list[BlockEdit]) -> list[BlockEdit]:
        for call in calls:
            self._note(call.path, "unanswered-call", "answered as not run")
        return [
            BlockEdit(
                call.path,
                {
                    "type": "tool_result",
                    "tool_use_id": call.block["id"],
                    "content": NOT_RUN,
                    "is_error": True,
                    **({} if call.toolset is None else {"toolset_name": call.toolset}),
                },
            )
            for call in calls
        ]

    def _repair_user_turn(self, turn: MessageGroup, calls: dict[str, BlockEdit]) -> None:
        """Drop results without a call, add missing results, and move all results to the front."""
        answered: set[str] = set()
        unwanted: dict[BlockEdit, str] = {}
        for _, part in turn.places:
            if part.kind == "tool_result" and (call := part.call) is not None:
                if call in answered:
                    unwanted[part] = "repeated-result"
                elif call in calls:
                    answered.add(call)
                else:
                    unwanted[part] = "orphan-result"
        self._take(turn.edits, unwanted)
        missing = self._answer_not_run([part for call, part in calls.items() if call not in answered])
        self._move_results_to_the_front([place for place in turn.places if place[1] not in unwanted], turn, missing)

    def _name_toolsets(self) -> None:
        for before, turn in pairwise(find_live_turns(self.edits)):
            calls = _list_calls(before if before.role == "assistant" else None)
            for edit in turn.edits:
                parts = [self._set_toolset(part, calls) for part in edit.parts]
                if parts != edit.parts:
                    edit.set(parts)

    def _set_toolset(self, part: BlockEdit, calls: dict[str, BlockEdit]) -> BlockEdit:
        call = calls.get(part.call or "") if part.kind == "tool_result" else None
        if call is None or call.toolset == part.toolset:
            return part
        self._note(part.path, "toolset-name", "set the toolset of its call" if call.toolset else "removed the toolset")
        block = {key: value for key, value in part.block.items() if key != "toolset_name"}
        return BlockEdit(part.path, block if call.toolset is None else {**block, "toolset_name": call.toolset})

    def _move_results_to_the_front(
        self, places: list[tuple[MessageEdit, BlockEdit]], turn: MessageGroup, missing: list[BlockEdit]
    ) -> None:
        front = next((at for at, (_, part) in enumerate(places) if part.kind != "tool_result"), len(places))
        late = {part: "results-first" for _, part in places[front:] if part.kind == "tool_result"}
        if not late and not missing:
            return
        first = places[front][1] if front < len(places) else None
        target = places[front][0] if first else turn.edits[-1]
        self._take(turn.edits, late, "moved to the front")
        at = target.parts.index(first) if first else len(target.parts)
        target.set([*target.parts[:at], *late, *missing, *target.parts[at:]])

    def _drop_server_calls(self) -> None:
        turns = find_live_turns(self.edits)
        closing = max((number for number, turn in enumerate(turns) if turn.closes), default=-1)
        waiting: dict[str, list[tuple[int, BlockEdit]]] = {}
        for number, turn in enumerate(turns):
            for _, part in turn.places:
                if part.kind in SERVER_CALLS and part.call is not None:
                    waiting.setdefault(part.call, []).append((number, part))
                elif part.kind is not None and is_server_result(part.kind):
                    waiting.pop(part.call or "", None)
        # Of calls with the same id, only the last counts. If it is dropped, the one before it is open.
        unpaired = {
            part: "open-server-call"
            for calls in waiting.values()
            for _, part in takewhile(lambda call: call[0] < closing, reversed(calls))
        }
        self._take(self.edits, unpaired)

    def _drop_server_results(self) -> None:
        """Drop server results that are not after their call. Those before the last compaction do not count."""
        parts = [part for turn in turns_of(self.edits) for _, part in turn.places]
        first = len(parts) - sum(len(turn.places) for turn in find_live_turns(self.edits))
        called: set[str | None] = {None}
        orphans: dict[BlockEdit, str] = {}
        for number, part in enumerate(parts):
            if part.kind in SERVER_CALLS:
                called.add(part.call)
            elif number >= first and part.kind is not None and is_server_result(part.kind) and part.call not in called:
                orphans[part] = "orphan-server-result"
        self._take(self.edits, orphans)


def _list_calls(turn: MessageGroup | None) -> dict[str, BlockEdit]:
    """Return the calls of an assistant turn by id: the first of two with the same id."""
    calls: dict[str, BlockEdit] = {}
    for _, part in turn.places if turn else ():
        if part.kind == "tool_use" and part.call is not None:
            calls.setdefault(part.call, part)
    return calls


def _is_blank_text(block: Any) -> bool:
    return kind_of(block) == "text" and is_blank(block.get("text"))
