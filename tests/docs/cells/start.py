# %% before "The first loop" 2
fake(reply(calls=[("add", {"a": 2, "b": 3})]), reply("The sum is 5."))

# %% before "Decide a call"
fake(
    reply(calls=[("delete_file", {"path": "old.txt"}), ("delete_file", {"path": "keep.txt"})]),
    reply("I deleted old.txt. keep.txt stays."),
)

# %% before "Stop now, continue later"
fake(reply(calls=[("delete_file", {"path": "a.txt"})]), reply("a.txt is gone."))
