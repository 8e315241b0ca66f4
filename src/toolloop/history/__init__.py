"""The rules of a history: check, repair, rounds."""
