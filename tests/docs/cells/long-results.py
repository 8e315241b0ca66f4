# %% before "Long results"
part = {"name": "toolu_1", "start": 90_000, "length": 80}
fake(reply("I read the log.", calls=[call("read_log", {}, id="toolu_1")]))
fake(reply(calls=[("read_result", part)]), reply("Line 10000 says ok."))
