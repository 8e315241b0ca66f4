# %% before "How it works"
fake(reply(calls=[("shell", {"command": "git status"})]), reply("Nothing to commit."))
keys("y")

# %% before "Progress, Ctrl-C for one answer, and undo"
fake(
    reply(calls=[("index", {"files": 2})]),
    reply(calls=[("shell", {"command": "git push"})]),
    reply("Committed."),
    reply("Fine."),
)


def press_ctrl_c(question):
    print(f"{question}Ctrl-C")
    raise KeyboardInterrupt


doc.input = press_ctrl_c

# %% after "Progress, Ctrl-C for one answer, and undo" 2
assert "Commit it" not in str(api.requests[-1].json), "the undone message is not sent again"
assert "the person pressed Ctrl-C" not in str(api.requests[-1].json), "the reason of a stop is for people"
