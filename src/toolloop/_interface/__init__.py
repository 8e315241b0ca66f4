"""The arguments and results of a loop, and the checks of both.

Not here: the journal, and anything that changes a loop.
"""
