# %% before "A whole program"
Path("letter.txt").write_text("Helo Ana")
fake(
    reply("Let me look.", calls=[("read_file", {"path": "letter.txt"})]),
    reply("I see it.", calls=[("write_file", {"path": "letter.txt", "text": "Hello Ana"})]),
    reply("Fixed."),
)
keys("y")

# %% after "A whole program"
assert Path("letter.txt").read_text() == "Hello Ana"

# %% before "Decide each call"
files = ["a.txt", "b.txt", "c.txt", "d.txt"]
fake(reply(calls=[("write_file", {"path": path, "text": "Hi"}) for path in files]), reply("All four, as you wish."))

# %% after "Drive it from an async program"
assert {path: Path(path).exists() for path in files} == {"a.txt": True, "b.txt": True, "c.txt": False, "d.txt": False}
assert Path("b.txt").read_text() == "Dear Ben"

# %% before "Stream a turn"
fake(reply("Nothing much, today."))

# %% before "Just a for-loop"
fake(reply("Let me look.", calls=[("read_file", {"path": "letter.txt"})]), reply("It says hello."))

# %% before "Approve from anywhere"
fake(reply("I ask first.", calls=[("write_file", {"path": "e.txt", "text": "Hi"})]), reply("Sent."))
