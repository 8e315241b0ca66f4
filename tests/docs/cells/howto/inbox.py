# %% before "Decide without the tools"
fake(
    reply(
        calls=[
            call("transfer", {"to": "bo", "euros": 90}, id="toolu_1"),
            call("transfer", {"to": "cy", "euros": 5}, id="toolu_2"),
        ]
    ),
    reply("Bo has the money."),
    reply(
        calls=[
            call("transfer", {"to": "bo", "euros": 4}, id="toolu_4"),
            call("transfer", {"to": "dan", "euros": 5}, id="toolu_5"),
        ]
    ),
    reply(calls=[call("transfer", {"to": "eve", "euros": 20}, id="toolu_6")]),
    reply("Eve has it, for her birthday."),
    reply(calls=[call("transfer", {"to": "dan", "euros": 40}, id="toolu_3")]),
    reply("Dan has it, too."),
    reply(calls=[call("transfer", {"to": "fay", "euros": 900}, id="toolu_7")]),
)

# %% after "An inbox for one person"
assert api.refused == []
