# %% before "Send only what is new"
fake(*(reply(calls=[("read", {"page": page})]) for page in range(3)), reply("Done."))

# %% after "Send only what is new"
assert api.refused == []
assert [len(request.json["messages"]) for request in api.requests] == [1, 1, 1, 1]
assert [request.json["thread"]["type"] for request in api.requests] == ["create", *["continue"] * 3]
