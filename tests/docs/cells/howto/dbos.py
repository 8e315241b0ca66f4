# %% before "Run loops on many machines, with DBOS"
fake(
    reply(calls=[call("transfer", {"to": "bo", "euros": 90}, id="toolu_1")]),
    reply("Bo has the money."),
)

# %% after "Run loops on many machines, with DBOS" 2
doc.client.close()
doc.loops.close()
assert api.refused == []
