"""The record of one loop, the tree of them, what happens to it, and what it wants done.

Not here: rules about which of it is allowed.
"""
