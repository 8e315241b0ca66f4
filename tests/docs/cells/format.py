# %% before "A short journal"
fake(reply(calls=[call("add", {"a": 17, "b": 25}, id="toolu_1")]))

# %% after "A short journal"
assert api.refused == []
