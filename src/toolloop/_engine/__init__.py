"""Decide which operation comes next, and what its end means.

Not here: the choice between a thread and a task, and waiting for several operations.
"""
