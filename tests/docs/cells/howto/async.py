# %% before "Go async"
fake(
    reply(calls=[("fetch", {"city": "Ulm"}), ("fetch", {"city": "Bonn"}), ("buy", {"city": "Bonn"})]),
    reply("Bonn it is."),
)
