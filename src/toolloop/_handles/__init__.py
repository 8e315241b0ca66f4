"""What a caller holds: commands, opening and waking, the results of turns, and both handles.

Not here: rules of a loop, and how an operation is performed.
"""
