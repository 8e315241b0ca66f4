# %% before "The program here"
fake(
    reply(calls=[call("refund", {"order": "7", "euros": 20}, id="toolu_1")]),
    reply("Your money is on its way."),
)
