"""The record of one loop, the tree of loops, their events, and their effects.

Not here: rules about which of it is allowed.
"""
