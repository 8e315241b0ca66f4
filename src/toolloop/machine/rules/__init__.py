"""The rules of one loop, each a function of it.

Not here: the table of transitions, and the tree.
"""
