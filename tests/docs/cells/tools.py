# %% before "What a tool may return"
fake(reply(calls=[("chart", {})]), reply("It rises."))

# %% before "Changing the texts"
fake(reply(calls=[("clear", {})]), reply("Gone."))

# %% after "Changing the texts"
doc.handle.pending_turn.continue_loop()
doc.handle.run()

# %% before "When a tool fails"
fake(reply(calls=[("lookup", {"key": "x"})]), reply("It is not there."))

# %% after "When a tool fails"
doc.handle.pending_turn.continue_loop()
doc.handle.next_turn()

# %% before "Retries"
fake(reply(calls=[("fetch", {"page": "a"})]), reply("Found."))

# %% after "Retries"
doc.handle.pending_turn.continue_loop()
doc.handle.run()

# %% before "The context of a call"
fake(reply(calls=[("scan_all", {"pages": 2})]), reply("Scanned."))

# %% after "The context of a call"
doc.handle.pending_turn.continue_loop()
doc.handle.run()

# %% before "Result filters"
fake(reply(calls=[("read_log", {})]), reply("It is long."))

# %% after "Result filters"
doc.handle.pending_turn.continue_loop()
doc.handle.run()

# %% before "Approval"
fake(reply(calls=[("pay", {"euros": 5}), ("pay", {"euros": 50}), ("pay", {"euros": 5000})]))

# %% before "Approval" 2
fake(reply(calls=[("rename", {"old": "a.txt", "new": "b.txt"})]))

# %% before "Approval" 3
large = call("supply", {"lines": [{"article": "pens", "count": 500}], "day": "2026-12-24"}, id="toolu_large")
fake(reply(calls=[("supply", {"lines": [], "day": "2026-12-24"}), large]))

# %% before "Approval" 4
given = {"host": "a.example", "token": "sk-live-0123456789abcdef0123456789abc-9f"}
fake(reply(calls=[("deploy", given)]))

# %% before "Tools that run elsewhere"
fake(reply(calls=[("scan", {})]), reply("The door is shut."))

# %% before "Tools of an MCP server"
fake(reply(calls=[("notes_delete_note", {"name": "old"})]), reply("Done."))

# %% before "Tools of an MCP server" 2
fake(reply(calls=[("notes_delete_note", {"name": "old"})]))
# The same server in this process: to start its program again takes seconds.
served = {}
exec(doc.SERVER.replace("server.run()", ""), served)
doc.program = served["server"]
