# %% before "Set limits, and continue after one"
fake(*(reply(calls=[("step", {"number": number})]) for number in (1, 2, 3)), reply("There."))

# %% before "Limits where loops run inside of calls"
fake(
    reply(calls=[call("walker", {"prompt": "Walk three steps."}, id="toolu_walker")]),
    reply(calls=[("step", {"number": number}) for number in (1, 2, 3)]),
    reply("I am there."),
    reply("The walker is there."),
)

# %% before "A budget in dollars"
fake(*(reply(calls=[("step", {"number": number})]) for number in (1, 2, 3)))

# %% before "Detect a model that repeats itself"
fake(*(reply(calls=[("find", {"word": "needle"})]) for _ in range(3)), reply("I cannot find it."))

# %% before "Stop for a reason of your own"
fake(reply(calls=[("step", {"number": 13})]))

# %% before "Stop a loop that works"
fake(reply(calls=[("refund", {"order": 902})]))
