# %% before "Rewind and fork"
fake(
    reply(calls=[("read_file", {"path": "a.txt"})]),
    reply("It is about bees."),
    reply("Il parle des abeilles."),
    reply("De apibus est."),
    reply("Bees."),
)
