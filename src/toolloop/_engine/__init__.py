"""Decide which operation comes next, and what its end means.

Not here: waiting, threads and tasks.
"""
