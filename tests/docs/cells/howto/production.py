# %% before "Retention"
import time

from toolloop.stores import Head, MemoryStore

kept = MemoryStore()
kept.create("old", [], head=Head("ended", changed=0.0))
kept.create("new", [], head=Head("ended", changed=time.time()))
kept.create("waits", [], head=Head("needs_decision", changed=0.0))

# %% after "Retention"
assert doc.delete_ended(kept, 30) == 1
assert [row.loop_id for row in kept.list()] == ["waits", "new"]
