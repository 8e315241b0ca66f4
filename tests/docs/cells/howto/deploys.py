# %% before "When you deploy"
fake(reply(calls=[("pay", {"to": "Ben", "euros": 30})]))

# %% before "Changes that raise, and changes that are adopted" 2
fake(reply("Paid."))

# %% before "Drain"
fake(reply("Hello."))
with doc.ToolLoopHandle(doc.client, params=doc.params, tools=[doc.pay], store=doc.store, loop_id="left") as left:
    left.update_params(max_tokens=1025)

# %% before "After `Drift`"
fake(reply("I could not pay."))
