# %% before "A host that is suspended"
fake(reply(calls=[("pay", {"order": 7})]), reply("Paid."))


def bank(order, *, key, not_after):
    assert (order, len(key)) == (7, 64)
    assert not_after.tzinfo is not None
    return "paid"


doc.bank = bank
