# %% before "A batch"
fake(*[reply("Refund") for _ in range(14)])

# %% after "Ctrl-C, and again"
assert (api.refused, len(api.requests)) == ([], 14)
assert {row.status for row in doc.store.list()} == {"ended"}
