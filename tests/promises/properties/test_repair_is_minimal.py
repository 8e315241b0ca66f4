"""`repair` takes away nothing that could stay: by an oracle that puts each lost block back, and asks the fake API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import event, given

from tests.kit.effort import examples
from tests.messages.bodies import NEXT, OPUS, TOOLS
from tests.messages.histories import broken_histories
from toolloop._messages.reading import THINKING
from toolloop.history import NO_WORDS, NOT_RUN, repair
from toolloop.testing.api.api_refusals import RequestContext
from toolloop.testing.api.rules import find_broken_rule

Message = dict[str, Any]
Block = dict[str, Any]


def is_taken(messages: list[Message]) -> bool:
    body = {"model": OPUS, "max_tokens": 4096, "messages": messages, "tools": TOOLS, "container": "container_1"}
    return find_broken_rule(body, RequestContext(), None) is None


def unshared(history: list[Message]) -> list[Message]:
    """A copy in which each block is an object of its own, in a list, without cache marks: there may be only four."""
    messages = json.loads(json.dumps([*history, NEXT]))
    for message in messages:
        if isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": message["content"]}]
        for block in message["content"]:
            block.pop("cache_control", None)
    return messages  # type: ignore[no-any-return]


def blocks_of(messages: list[Message]) -> Iterator[Block]:
    for message in messages:
        yield from message["content"]


def places(lost: Block, home: Message, order: dict[int, int], mended: list[Message]) -> Iterator[list[Message]]:
    """The mended history with a lost block put back in its order: into what is left of its message, or on its own.

    Args:
        lost: the block.
        home: its message.
        order: the places that all blocks had, by identity.
        mended: the mended history.

    """
    siblings = {id(own) for own in home["content"]}

    def in_order(before: list[Block], after: list[Block]) -> bool:
        """Results move to the front of their turn; so they keep their order among the messages only."""
        return not any(
            (id(other) in order)
            and not (lost["type"] == "tool_result" and id(other) in siblings)
            and (order[id(other)] < order[id(lost)]) is not is_before
            for others, is_before in ((before, True), (after, False))
            for other in others
        )

    for number in range(len(mended) + 1):
        # System messages may have moved, so that they say nothing about order.
        passed, to_come = (
            list(blocks_of([message for message in part if message["role"] != "system"]))
            for part in (mended[:number], mended[number:])
        )
        if in_order(passed, to_come):
            yield [*mended[:number], {"role": home["role"], "content": [lost]}, *mended[number:]]
        left = mended[number]["content"] if number < len(mended) else []
        if siblings.isdisjoint(map(id, left)):
            continue
        for index in range(len(left) + 1):
            if in_order(left[:index], left[index:]):
                whole = {"role": home["role"], "content": [*left[:index], lost, *left[index:]]}
                yield [*mended[:number], whole, *mended[number + 1 :]]


@examples(20)
@given(broken_histories())
def test_whatever_is_lost_could_not_stay(broken: list[Message]) -> None:
    """Put back, wherever in its order, it makes the API refuse the history.

    But for thinking at the end of a turn: it goes before anything else does, although its turn may go on once the next
    message is gone.
    """
    messages = unshared(broken)
    mended = repair(messages).messages
    assert is_taken(mended)
    kept = {id(block) for block in blocks_of(mended)}
    order = {id(block): index for index, block in enumerate(blocks_of(messages))}
    for home in messages:
        for block in home["content"]:
            if id(block) in kept or ends_its_turn(block, home, messages, kept):
                continue
            if block["type"] == "tool_result" and is_rewritten(block, order, mended):
                continue
            event(f"lost: {block['type']}")
            for tried in places(block, home, order, mended):
                assert not is_taken(tried), (block, tried)


def ends_its_turn(block: Block, home: Message, messages: list[Message], kept: set[int]) -> bool:
    """Whether this is thinking after which nothing of its turn was kept."""
    if block["type"] not in THINKING:
        return False
    start = next(index for index, message in enumerate(messages) if message is home)
    later = home["content"][next(index for index, own in enumerate(home["content"]) if own is block) + 1 :]
    for message in messages[start + 1 :]:
        if message["role"] != home["role"]:
            break
        later = [*later, *message["content"]]
    return all(id(other) not in kept for other in later)


def known(messages: list[Message]) -> set[int]:
    return {id(block) for block in blocks_of(messages)}


def is_rewritten(block: Block, order: dict[int, int], mended: list[Message]) -> bool:
    """Whether a result is there in other words: those of an error that said nothing, without blank text, renamed."""
    return any(
        (new["type"], new.get("tool_use_id")) == ("tool_result", block["tool_use_id"])
        and id(new) not in order
        and new["content"] != NOT_RUN
        for new in blocks_of(mended)
    )


@given(broken_histories())
def test_nothing_is_made_up_but_answers(broken: list[Message]) -> None:
    """New is the answer to a call that did not run, or a result with the words or the name that it lacked."""
    messages = unshared(broken)
    old = known(messages)
    results = [block for block in blocks_of(messages) if block["type"] == "tool_result"]
    for block in blocks_of(repair(messages).messages):
        if id(block) in old:
            continue
        assert block["type"] == "tool_result"
        own = {key: block[key] for key in ("type", "tool_use_id")}
        if block["content"] == NOT_RUN:
            assert block["is_error"]
            assert block.keys() <= {"type", "tool_use_id", "content", "is_error", "toolset_name"}
            continue
        origins = [result for result in results if own.items() <= result.items()]
        assert any(
            block["content"] in (result.get("content"), NO_WORDS, "")
            and block.get("is_error") == result.get("is_error")
            for result in origins
        )


@given(broken_histories())
def test_what_stays_keeps_its_order(broken: list[Message]) -> None:
    """Results among results, all else among all else, but for system messages, which move behind a user's."""
    messages = unshared(broken)
    mended = repair(messages).messages
    for kinds in ({True}, {False}):
        before, after = (
            [
                id(block)
                for message in history
                if message["role"] != "system"
                for block in message["content"]
                if (block["type"] == "tool_result") in kinds
            ]
            for history in (messages, mended)
        )
        stayed = [block for block in after if block in set(before)]
        assert stayed == [block for block in before if block in set(stayed)]


@given(broken_histories())
def test_it_is_deterministic_and_done_at_once(broken: list[Message]) -> None:
    """Asked twice, it does the same; asked again, nothing."""
    first, second = repair(unshared(broken)), repair(unshared(broken))
    assert first == second
    assert repair(first.messages).changes == ()
