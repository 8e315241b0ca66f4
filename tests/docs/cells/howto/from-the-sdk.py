# %% before "Come from the SDK's runner"
fake(reply(calls=[("add", {"a": 2, "b": 3})]), reply("5"))
