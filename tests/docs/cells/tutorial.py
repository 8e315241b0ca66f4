# %% before "1. A tool and a loop"
fake(reply("Let me see.", calls=[("find_trains", {"start": "Ulm", "end": "Bonn"})]))

# %% before "2. Continue until the end"
fake(reply("The first one leaves at 09:51."))

# %% before "3. A tool that needs your approval"
fake(reply(calls=[("book", {"train": "ICE 512", "seats": 1}), ("find_trains", {"start": "Bonn", "end": "Ulm"})]))

# %% before "5. Deny, and send a message"
fake(reply(calls=[("book", {"train": "ICE 611", "seats": 9})]), reply("Then only one way. Have a good trip!"))

# %% before "6. Answer for a tool"
fake(reply(calls=[("book", {"train": "ICE 610", "seats": 1})]), reply("Ben has a seat."))

# %% before "7. Stop in the middle"
fake(reply(calls=[("book", {"train": "ICE 513", "seats": 3})]), reply("Three seats on the way back."))

# %% before "8. Use a store"
fake(reply(calls=[("book", {"train": "ICE 78", "seats": 1})]), reply("Cleo has a seat."))
