# %% before "Approvals: decisions, deadlines, grants"
import datetime

fake(
    reply(
        calls=[
            ("remove", {"path": "/data/a"}),
            ("remove", {"path": "/data/b"}),
            ("remove", {"path": "/etc"}),
            ("remove", {"path": "/data/d"}),
        ]
    ),
    reply("Two are gone."),
)

# %% before "Who, when and why"
fake(reply(calls=[("remove", {"path": "/data/e"})]))

# %% after "Who, when and why"
fake(reply("Gone."))
assert doc.handle.run().text == "Gone."
doc.handle.close()

# %% before "Deadlines"
fake(reply(calls=[("remove", {"path": "/data/f"})]))
doc.now = 1_800_000_000.0

# %% before "Deadlines" 2
fake(reply(calls=[("remove", {"path": "/data/g"})]))

# %% before "Deadlines" 3
fake(reply("Then I leave it."))

# %% before "Deadlines" 4
fake(reply(calls=[("remove", {"path": "/data/h"})]))

# %% before "Grants: approve later calls, too"
fake(
    reply(calls=[("remove", {"path": "/data/x"})]),
    reply(calls=[("remove", {"path": "/data/x"}), ("remove", {"path": "/"})]),
)

# %% before "Grants: approve later calls, too" 3
fake(
    reply(
        calls=[
            ("remove", {"path": "/data/y"}),
            ("remove", {"path": "/data/deep/z"}),
            ("remove", {"path": "/data/../etc"}),
        ]
    ),
)

# %% before "A policy that asks"
fake(reply("Fine."))
doc.turn.approve_all(by="ana")
assert doc.handle.run().text == "Fine."
doc.handle.close()
fake(
    reply(calls=[("remove", {"path": "/data/1"}), ("remove", {"path": "/etc/2"}), ("remove", {"path": "/opt/3"})]),
)

# %% before "A model that judges before a person does"
fake(
    reply(calls=[("remove", {"path": "/data/cache"}), ("remove", {"path": "/data/ana"})]),
    reply("YES"),
    reply("NO"),
)

# %% after "A model that judges before a person does"
assert ["/data/cache" in str(asked.json["messages"]) for asked in api.requests[-2:]] == [True, False]

# %% before "Several persons, groups, and rules that change"
fake(reply(calls=[("remove", {"path": "/data/g"})]))
