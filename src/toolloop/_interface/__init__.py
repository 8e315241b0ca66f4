"""What a caller gives to a loop and gets from it, and the checks of both.

Not here: the journal, and anything that changes a loop.
"""
