"""The record of a tree of loops: its state, its store, its lease, and the watch events of each change.

Not here: starting an operation.
"""
