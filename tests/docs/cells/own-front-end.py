# %% before "An adapter"
fake(reply("I can do that.", calls=[call("refund", {"order": 7})]))
