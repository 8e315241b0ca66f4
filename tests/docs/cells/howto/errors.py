# %% before "Handle errors, and retry"
fake(reply(calls=[("rm", {"path": "a.txt"})]))

# %% before "Handle errors, and retry" 2
fake(fault(529, retry_after=3))

# %% before "Handle errors, and retry" 3
fake(reply("Good, nothing was removed."))
