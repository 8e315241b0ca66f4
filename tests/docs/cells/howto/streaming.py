# %% before "Stream a turn"
fake(
    reply("Let me look.", calls=[("read_file", {"path": "README.md"})]),
    reply("It is about tides."),
)

# %% before "Stream over many turns"
fake(
    reply("Let me look.", calls=[("read_file", {"path": "README.md"})]),
    reply("It is about tides."),
)

# %% before "Leaving a stream early"
from toolloop.testing import streamed

fake(reply("A very long story about the sea, and about the moon too."), reply("Short."))

# %% before "When a stream breaks"
fake(
    streamed(reply("A very long story about the sea."), cut=4),
    reply("A short story."),
)
