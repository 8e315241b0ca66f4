"""Mending a history: the least change after which the API takes it.

What is mended, by rule: `unanswered-call`, `orphan-result`, `repeated-result`, `results-first`, `open-server-call`,
`blank-text`, `empty-content`, `empty-error-result`, `toolset-name`, `thinking-last`, and `system-place` where a user
message follows.

What is not, since only its author can know what was meant: wrong shapes, fields and keys, unknown roles, blocks of the
other role, two calls of one id in one turn, thinking without words and signature, what stands beside the results of
calls that code made, what a result may not hold, a system message at the start or right after an assistant message, an
empty history, and all that depends on the model or on other parameters of the request.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import Any, Final

from toolloop.core.freezing import frozen
from toolloop.history.draft import Draft, Piece, Turn, live_turns, take_apart, turns_of
from toolloop.history.reading import SERVER_CALLS, THINKING, is_blank, is_server_result, kind_of

NOT_RUN: Final = "This call was not run."
#: Stands for the words of a result that is an error and says nothing.
NO_WORDS: Final = "The tool failed without a message."


@frozen
class Change:
    """One thing that `repair` did.

    Args:
        path: where, in the indices of the list that was given.
        rule: the id of the rule that was broken there.
        what: what was done, in words.

    """

    path: str
    rule: str
    what: str


@frozen
class Repaired:
    """A mended history, and what was done to it. Messages without a change are the objects that were given."""

    messages: list[Any]
    changes: tuple[Change, ...]


def repair(messages: Sequence[Any]) -> Repaired:
    """Mend a history as far as that is possible without its author; the module says what is mended and what is not.

    Deterministic; a second repair finds nothing to do; a valid history comes back as it is. The list and the messages
    that are given are not changed.
    """
    mender = _Mender([take_apart(number, message) for number, message in enumerate(messages)])
    mender.mend()
    return Repaired([draft.message() for draft in mender.drafts], tuple(mender.changes))


class _Mender:
    def __init__(self, drafts: list[Draft]) -> None:
        self.drafts = drafts
        self.changes: list[Change] = []
        self.given = drafts
        self.thoughts: list[tuple[Draft, Piece]] = []  # what thinking was dropped, the last of each message first

    def mend(self) -> None:
        self._drop_blank_text()
        for draft in self.drafts:
            self._mend_results(draft)
        # One step may uncover work for another: a message that goes lets its neighbours meet. Each step takes away, or
        # answers a call for good, or brings order, so this ends.
        done = -1
        while done < len(self.changes):
            done = len(self.changes)
            self._drop_what_ends_badly()
            self._move_system_messages()
            self._pair()
            self._name_toolsets()
            self._drop_empty_messages()
        self._bring_back_thinking()

    def _drop_what_ends_badly(self) -> None:
        """Before calls are paired: where a reply goes, a result behind it may meet its call."""
        done = -1
        while done < len(self.changes):
            done = len(self.changes)
            self._drop_server_calls()
            self._drop_trailing_thinking()
            self._drop_empty_messages()

    def _note(self, path: str, rule: str, what: str) -> None:
        self.changes.append(Change(path, rule, what))

    def _take(self, drafts: list[Draft], unwanted: dict[Piece, str], what: str = "dropped") -> None:
        """Take blocks out; `unwanted` says for each which rule it broke."""
        for draft in drafts:
            kept = [piece for piece in draft.pieces if piece not in unwanted]
            if len(kept) == len(draft.pieces):
                continue
            for piece in draft.pieces:
                if piece in unwanted:
                    self._note(piece.path, unwanted[piece], what)
            draft.set(kept)

    def _drop_blank_text(self) -> None:
        blank = {
            piece: "blank-text"
            for draft in self.drafts
            for piece in draft.pieces
            if piece.kind == "text" and is_blank(piece.block.get("text"))
        }
        self._take(self.drafts, blank)
        for draft in self.drafts:
            if draft.role == "system" and not draft.pieces and draft.original.get("output_config"):
                draft.role = None  # what is left only directs, and stands where it stands

    def _mend_results(self, draft: Draft) -> None:
        pieces = [self._mend_result(piece) if piece.kind == "tool_result" else piece for piece in draft.pieces]
        if any(new is not old for new, old in zip(pieces, draft.pieces, strict=True)):
            draft.set(pieces)

    def _mend_result(self, piece: Piece) -> Piece:
        content = piece.block.get("content")
        if isinstance(content, list):
            kept = [inner for inner in content if not _is_blank_text(inner)]
            if len(kept) < len(content):
                self._note(piece.path, "blank-text", "dropped blank text inside the result")
                piece = Piece(piece.path, piece.block | {"content": kept or ""})
        if piece.block.get("is_error") is True and piece.block.get("content") in (None, "", []):
            self._note(piece.path, "empty-error-result", "said that the tool failed without a message")
            piece = Piece(piece.path, piece.block | {"content": NO_WORDS})
        return piece

    def _drop_trailing_thinking(self) -> None:
        trailing: list[tuple[Draft, Piece]] = []
        for turn in turns_of(self.drafts):
            if turn.role == "assistant":
                trailing += takewhile(lambda place: place[1].kind in THINKING, reversed(turn.places))
        self.thoughts += trailing
        self._take(self.drafts, dict.fromkeys((piece for _, piece in trailing), "thinking-last"))

    def _bring_back_thinking(self) -> None:
        """Where the user's message went that came after it, thinking is no longer the end of its turn, and may stay."""
        numbers = {draft: number for number, draft in enumerate(self.given)}
        there = [draft for draft in self.drafts if draft.pieces and draft.role is not None]
        stayed, after = set(there), dict(pairwise(there))
        # These never change places.
        spoken = [draft for draft in there if draft in numbers and draft.role != "system"]
        before: dict[Draft, list[Draft]] = {}
        back: set[Change] = set()
        for draft, piece in reversed(self.thoughts):
            at = bisect_right(spoken, numbers[draft], key=numbers.__getitem__)
            follower = after.get(draft) if draft in stayed else next(iter(spoken[at : at + 1]), None)
            if follower is None or follower.role != "assistant":
                continue
            if not draft.pieces:
                before.setdefault(follower, []).append(draft)
            draft.put_back(piece)
            back.add(Change(piece.path, "thinking-last", "dropped"))
        self.drafts = [new for draft in self.drafts for new in (*before.get(draft, ()), draft)]
        self.changes = [change for change in self.changes if change not in back]

    def _drop_empty_messages(self) -> None:
        gone: set[Draft] = set()
        for turn in turns_of(self.drafts):
            for draft in turn.drafts:
                if draft.pieces:
                    continue
                if draft.changed:
                    gone.add(draft)  # what emptied it is noted already
                elif turn.role == "system" or not turn.places:
                    gone.add(draft)
                    self._note(draft.path, "empty-content", "dropped")
        self.drafts = [draft for draft in self.drafts if draft not in gone]

    def _move_system_messages(self) -> None:
        ordered: list[Draft] = []
        held: list[Draft] = []
        passed = 0
        for turn in turns_of(self.drafts):
            if turn.role == "system":
                held += turn.drafts
            elif turn.role == "user":
                ordered += turn.drafts
                passed = len(held)
            else:
                ordered += [*self._moved(held, passed), *turn.drafts]
                held, passed = [], 0
        ordered += self._moved(held, passed)
        # Drafts without a role keep their places among the others.
        rest = iter(ordered)
        self.drafts = [draft if draft.role is None else next(rest) for draft in self.drafts]

    def _moved(self, held: list[Draft], passed: int) -> list[Draft]:
        for draft in held[:passed]:
            self._note(draft.path, "system-place", "moved behind the user message after it")
        return held

    def _pair(self) -> None:
        turns = live_turns(self.drafts)
        answers: dict[Draft, Draft] = {}
        for number, turn in enumerate(turns):
            if turn.role == "user":
                before = turns[number - 1] if number and turns[number - 1].role == "assistant" else None
                self._mend_user_turn(turn, _calls(before))
            elif turn.role == "assistant" and (number + 1 == len(turns) or turns[number + 1].role != "user"):
                last = turn.drafts[-1]
                if calls := list(_calls(turn).values()):
                    answers[last] = Draft(last.path, {"role": "user"}, "user", self._not_run(calls), changed=True)
        self.drafts = [new for draft in self.drafts for new in (draft, answers.get(draft)) if new is not None]

    def _not_run(self, calls: list[Piece]) -> list[Piece]:
        for call in calls:
            self._note(call.path, "unanswered-call", "answered as not run")
        return [
            Piece(
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

    def _mend_user_turn(self, turn: Turn, calls: dict[str, Piece]) -> None:
        """Drop the results that answer nothing, then bring those that do, and the missing ones, to the front."""
        answered: set[str] = set()
        unwanted: dict[Piece, str] = {}
        for _, piece in turn.places:
            if piece.kind == "tool_result" and (call := piece.call) is not None:
                if call in answered:
                    unwanted[piece] = "repeated-result"
                elif call in calls:
                    answered.add(call)
                else:
                    unwanted[piece] = "orphan-result"
        self._take(turn.drafts, unwanted)
        missing = self._not_run([piece for call, piece in calls.items() if call not in answered])
        self._results_to_the_front([place for place in turn.places if place[1] not in unwanted], turn, missing)

    def _name_toolsets(self) -> None:
        for before, turn in pairwise(live_turns(self.drafts)):
            calls = _calls(before if before.role == "assistant" else None)
            for draft in turn.drafts:
                pieces = [self._with_toolset(piece, calls) for piece in draft.pieces]
                if pieces != draft.pieces:
                    draft.set(pieces)

    def _with_toolset(self, piece: Piece, calls: dict[str, Piece]) -> Piece:
        call = calls.get(piece.call or "") if piece.kind == "tool_result" else None
        if call is None or call.toolset == piece.toolset:
            return piece
        self._note(piece.path, "toolset-name", "named the toolset of its call" if call.toolset else "named no toolset")
        block = {key: value for key, value in piece.block.items() if key != "toolset_name"}
        return Piece(piece.path, block if call.toolset is None else {**block, "toolset_name": call.toolset})

    def _results_to_the_front(self, places: list[tuple[Draft, Piece]], turn: Turn, missing: list[Piece]) -> None:
        front = next((at for at, (_, piece) in enumerate(places) if piece.kind != "tool_result"), len(places))
        late = {piece: "results-first" for _, piece in places[front:] if piece.kind == "tool_result"}
        if not late and not missing:
            return
        first = places[front][1] if front < len(places) else None
        target = places[front][0] if first else turn.drafts[-1]
        self._take(turn.drafts, late, "moved to the front")
        at = target.pieces.index(first) if first else len(target.pieces)
        target.set([*target.pieces[:at], *late, *missing, *target.pieces[at:]])

    def _drop_server_calls(self) -> None:
        turns = live_turns(self.drafts)
        closing = max((number for number, turn in enumerate(turns) if turn.closes), default=-1)
        waiting: dict[str, list[tuple[int, Piece]]] = {}
        for number, turn in enumerate(turns):
            for _, piece in turn.places:
                if piece.kind in SERVER_CALLS and piece.call is not None:
                    waiting.setdefault(piece.call, []).append((number, piece))
                elif piece.kind is not None and is_server_result(piece.kind):
                    waiting.pop(piece.call or "", None)
        # Of calls of one id only the last is seen; where it goes, the one before it is open.
        unpaired = {
            piece: "open-server-call"
            for calls in waiting.values()
            for number, piece in takewhile(lambda call: call[0] < closing, reversed(calls))
        }
        self._take(self.drafts, unpaired)


def _calls(turn: Turn | None) -> dict[str, Piece]:
    """The calls of an assistant turn by id; of two with one id the first."""
    calls: dict[str, Piece] = {}
    for _, piece in turn.places if turn else ():
        if piece.kind == "tool_use" and piece.call is not None:
            calls.setdefault(piece.call, piece)
    return calls


def _is_blank_text(block: Any) -> bool:
    return kind_of(block) == "text" and is_blank(block.get("text"))
