# %% before "Run loops from cron"
fake(
    reply(calls=[call("transfer", {"to": "bo", "euros": 90}, id="toolu_1")]),
    reply("Bo has the money."),
)

# %% after "Run loops from cron" 2
assert api.refused == []
