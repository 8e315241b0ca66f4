"""Both handles, with their commands, opening and waking, and turns.

Not here: rules of a loop, and how an operation is performed.
"""
