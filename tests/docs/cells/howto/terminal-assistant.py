# %% before "How it works"
fake(reply(calls=[("shell", {"command": "git status"})]), reply("Nothing to commit."))
keys("y")
