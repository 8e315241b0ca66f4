"""What a caller holds: commands, opening and waking, the results of turns, and both handles."""
