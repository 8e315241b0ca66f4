# %% before "Run a worker"
fake(
    reply(calls=[call("transfer", {"to": "bo", "euros": 90}, id="toolu_1")]),
    reply("Bo has the money."),
    fault(400),
    reply("Hello."),
)
import io, logging

log = logging.StreamHandler(io.StringIO())
logging.getLogger("toolloop.worker").addHandler(log)
logging.getLogger("toolloop.worker").propagate = False

# %% before "As a service, or from cron"
import threading

doc.stop_event = threading.Event()
doc.stop_event.set()

# %% after "Several kinds of agents"
doc.inbox.stop("other", "a test")

# %% before "Failed loops"
doc.create("hello", "Hello")
doc.worker.run_once()
assert doc.store.head("hello").head.retry_at is None

# %% after "Failed loops"
assert api.refused == []
