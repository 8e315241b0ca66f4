# %% before "Watch a loop: events, observers, logs, traces"
fake(reply("Let me look.", calls=[("look", {"path": "a.txt"})]), reply("It says hello."))

# %% before "Around requests and tools"
fake(reply(calls=[("look", {"path": "a.txt"}), ("look", {"path": "b.txt"})]), reply("Both say hello."))

# %% before "One observer for many loops"
fake(reply("Hello Ana."), reply("Hello Ben."))

# %% before "Logs"
fake(reply(calls=[("look", {"path": "a.txt"})]), reply("Hello."))

# %% before "Traces"
fake(reply(calls=[("look", {"path": "a.txt"})]), reply("Hello."))
