# %% before "The tools"
fake(
    reply(calls=[("look_up", {"order": 7}), ("pay", {"order": 7, "euros": 20}), ("pay", {"order": 8, "euros": 900})]),
    fault(529),
    reply("Order 7 is paid back, order 8 is not."),
)

# %% before "Begin, decide, continue" 3
sent = [json.loads(text) for text in doc.driver.state.root.messages] if (json := __import__("json")) else None
assert [block["type"] for block in sent[-1]["content"]] == ["tool_result"] * 3
assert ["order 7 came broken", "paid 20 euros"] == [block["content"] for block in sent[-1]["content"][:2]]
assert "too much" in sent[-1]["content"][2]["content"]
