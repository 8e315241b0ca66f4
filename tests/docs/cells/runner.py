# %% before "The for-loop runner"
fake(reply("Let me see.", calls=[("add", {"a": 2, "b": 3})]), reply("5"))

# %% before "Look at results, change them, run a call again"
fake(reply(calls=[("flaky", {})]), reply("done"))

# %% before "Calls that wait for a person"
fake(reply(calls=[("remove", {"path": "x"})]), reply("I left it."))

# %% before "Streams"
fake(reply("Hello, and welcome."))

# %% before "Streams" 2
fake(reply("Hello, and welcome."))
