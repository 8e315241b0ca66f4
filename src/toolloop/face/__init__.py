"""The values that a caller passes to a loop and gets from it: configuration, decisions, calls, results."""
