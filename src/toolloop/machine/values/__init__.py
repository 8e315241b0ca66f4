"""Frozen values and texts that know no loop.

Not here: anything that has a loop.
"""
