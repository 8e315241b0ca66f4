"""What the fake API refuses by itself, and the form in which it refuses anything."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import given, strategies as st

from tests.messages.bad_requests import BAD_REQUESTS, GOOD_REQUESTS
from tests.messages.bodies import (
    HI,
    OPUS,
    SONNET_4_5,
    TOOL,
    assistant,
    body,
    call,
    make_bare,
    make_found,
    result,
    search,
    system,
    user,
)
from tests.testing.asking import Said, judged
from toolloop.testing.api.api_refusals import RequestContext
from toolloop.testing.api.rules import find_broken_rule
from toolloop.testing.api.signing import Signer

CHANGES = "mid-conversation-tool-changes-2026-07-01"
INLINE = "inline-tools-2026-09-15"
REMOVAL = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "look"}}
ADDITION = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {**TOOL, "name": "sub"}}}
DEFERRED = {**TOOL, "defer_loading": True}

#: The name of a case, the body, and a part of the message: shapes in the words of the API, and its path into the body.
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("a missing key", body({"content": "x"}), "messages.0.role: Field required"),
    ("a wrong type", body({"role": "user", "content": 7}), "messages.0.content: Input should be a valid array"),
    ("an unknown key", body({**HI, "name": "me"}), "messages.0.name: Extra inputs are not permitted"),
    ("an unknown top-level key", body(HI, mood="calm"), "mood: Extra inputs are not permitted"),
    ("a key inside a block", body(user({"type": "text", "text": "x", "a": 1})), "messages.0.content.0.text.a: Extra"),
    ("an unknown block", body(user({"type": "x"})), "messages.0.content.0: Input tag 'x' found using 'type' does not"),
    ("a tool without a schema", body(HI, tools=[{"name": "add"}]), "tools.0.custom.input_schema: Field required"),
    ("a tool of unknown type", body(HI, tools=[{**TOOL, "type": "gadget"}]), "tools.0: Input tag 'gadget' found"),
    ("an unknown choice", body(HI, tool_choice={"type": "x"}), "expected tags: 'auto', 'any', 'tool', 'none'"),
    ("an unknown effort", body(HI, output_config={"effort": "huge"}), "effort: Input should be 'low', 'medium'"),
    ("a bool for a number", body(HI, max_tokens=True), "max_tokens: Input should be a valid integer"),
    ("null for a required key", body(HI, model=None), "model: Input should be a valid string"),
    ("too few tokens", body(HI, max_tokens=-1), "max_tokens: Input should be greater than or equal to 0"),
    ("an order of blocks", body(HI, assistant(call()), HI), "messages.1.content.0: the call toolu_1 has no result"),
    ("a system prompt", body(HI, system=[{"type": "text"}]), "system.0.text: Field required"),
    (
        "an effort of newer models",
        body(HI, model=SONNET_4_5, output_config={"effort": "xhigh"}),
        "effort level 'xhigh'",
    ),
    ("a choice without tools", make_bare(HI, tool_choice={"type": "auto"}), "only be specified while providing tools"),
    ("a choice of no tool", body(HI, tool_choice={"type": "tool", "name": "x"}), "Tool 'x' not found"),
    ("deferred tools only", body(HI, tools=[DEFERRED]), "All tools cannot be deferred"),
    ("a container without code", body(HI, tools=[TOOL], container="c"), "when using the code execution tool"),
    ("calls without tools", make_bare(HI, assistant(call()), user(result())), "messages.1.content.0"),
    ("a server result at the end", body(HI, assistant(search(), make_found())), "end in an assistant message"),
]


def test_a_refusal_says_where_and_what() -> None:
    for request_body, message in [case[1:] for case in REFUSED]:
        said = judged(request_body)
        assert (said.status, said.type) == (400, "invalid_request_error")
        assert message in said.message


def test_null_stands_for_an_absent_key() -> None:
    given_null = {"metadata": {"user_id": None}, "tool_choice": None, "thinking": None, "container": None}
    assert judged(body(HI, **given_null)) == Said(200)


def test_sampling_parameters_belong_to_the_old_version() -> None:
    for name in ("temperature", "top_p", "top_k"):
        assert judged(body(HI, **{name: 1}), anthropic_version="2023-06-01").status == 200
        assert judged(body(HI, **{name: 1})).message == f"{name}: Extra inputs are not permitted"


def test_what_belongs_to_a_beta_needs_it() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (body(HI, context_management={"edits": []}), "context-management-2025-06-27"),
        (body(HI, mcp_servers=[]), "mcp-client-2025-11-20"),
        (body(HI, system(REMOVAL)), CHANGES),
        (body(HI, system(ADDITION)), INLINE),
        (
            body(HI, system({"type": "text", "text": "s"}, clear_at="never")),
            "mid-conversation-system-clear-at-2026-08-21",
        ),
        (body(HI, system(output_config={"effort": "low"})), "mid-conversation-output-config-2026-07-01"),
        (body(HI, thinking={"type": "adaptive", "block_binding": {}}), "thinking-binding-controls-2026-08-01"),
    ]
    for request_body, beta in cases:
        assert judged(request_body, anthropic_beta=f"other, {beta}") == Said(200)
        assert "Extra inputs are not permitted" in judged(request_body).message


def test_a_tool_change_names_a_tool_of_the_request() -> None:
    unknown = {**REMOVAL, "tool": {"type": "tool_reference", "name": "x"}}
    assert judged(body(HI, system(unknown)), anthropic_beta=CHANGES).error_code == "tool_reference_unresolved"


def test_calls_made_by_code_need_their_container() -> None:
    run = {"type": "server_tool_use", "id": "srvtoolu_c", "name": "code_execution", "input": {}}
    by_code = call(caller={"type": "code_execution_20250825", "tool_id": "srvtoolu_c"})
    asked = body(HI, assistant(run, by_code), user(result()))
    assert judged({**asked, "container": "container_1"}) == Said(200)
    assert "container_id is required" in judged(asked).message


# --- any body at all ---

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.sampled_from(["user", "text", "tool_use"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "id"]), inner),
    max_leaves=6,
)
BODIES = [bad.body for bad in BAD_REQUESTS] + [good for _, good in GOOD_REQUESTS]
CONTEXT = RequestContext(betas=frozenset({CHANGES, INLINE, "compact-2026-09-04", "context-management-2025-06-27"}))
COMPACTION = {"model": OPUS, "max_tokens": 9, "messages": [HI], "compaction": {"type": "summarize"}}


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in a value: the container, and the key or index."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


@given(st.data())
def test_every_damaged_body_gets_an_answer(data: st.DataObject) -> None:
    damaged = copy.deepcopy(data.draw(st.just(COMPACTION) | st.sampled_from(BODIES)))
    for _ in range(data.draw(st.integers(1, 3))):
        spots = list(places(damaged))
        container, key = spots[data.draw(st.integers(0, len(spots) - 1))]
        if data.draw(st.booleans()):
            container[key] = data.draw(JSON)
        else:
            del container[key]
    said = find_broken_rule(damaged, CONTEXT, Signer())
    assert said is None or (said.status >= 400 and said.message)


@given(JSON)
def test_a_body_that_is_not_an_object_is_refused(value: Any) -> None:
    said = find_broken_rule(value, RequestContext(), None)
    assert said is not None
    assert said.status == 400
