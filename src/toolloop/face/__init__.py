"""What a caller gives a loop and gets from it: configuration, decisions, calls, results."""
