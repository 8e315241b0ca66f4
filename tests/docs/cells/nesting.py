# %% before "`sub_loop`"
fake(
    reply(calls=[call("clerk", {"prompt": "How many letters are there about bees?"}, id="toolu_clerk")]),
    reply(calls=[("search", {"query": "bees"})]),
    reply("There are three letters about bees."),
    reply("Three."),
)

# %% before "Approvals of nested calls"
fake(
    reply(calls=[call("clerk", {"prompt": "Shred letter 7."}, id="toolu_clerk")]),
    reply(calls=[call("shred", {"letter": "7"}, id="toolu_shred")]),
)

# %% before "Approvals of nested calls" 2
fake(reply("Letter 7 is gone."), reply("Done."))

# %% before "Parameters that depend on the input"
fake(
    reply(calls=[("ask", {"about": "bees", "question": "How many?"})]),
    reply("Three."),
    reply("Three bees."),
)

# %% before "A handle of your own, inside a tool"
fake(reply(calls=[("translate", {"text": "Biene"})]), reply("bee"), reply("It means bee."))

# %% before "A handle of your own, inside a tool" 2
fake(reply(calls=[("translate", {"text": "Wespe"})]), reply("wasp"), reply("It means wasp."))
