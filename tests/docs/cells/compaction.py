# %% before "Between turns"
from toolloop.history import estimate_tokens

fake(*(reply(calls=[("page", {"number": number})]) for number in range(1, 41)), reply("Read."))

# %% after "Between turns"
tools = [{"name": "page", "description": "Read a page.", "input_schema": {"type": "object"}}]
sizes = [estimate_tokens(request.json["messages"], tools=tools) for request in api.requests]
assert max(sizes) < 20_000, max(sizes)
assert sum(len(request.body) for request in api.requests) < 40 * 100_000

# %% before "Between turns" 2
assert len(api.requests) == 41
fake(*(reply(calls=[("page", {"number": number})]) for number in range(1, 6)), reply("Read."))

# %% before "Summaries"
fake(*(reply(calls=[("page", {"number": number})]) for number in range(1, 5)))
fake(reply("Pages 1 and 2 say blah.", usage={"input_tokens": 2_000, "output_tokens": 8}), reply("All blah."))

# %% before "By hand" 3
fake(reply("Good bye."))

# %% before "Let the API do it"
fake(compacted("The user read four pages of blah."), reply("Yes."))
