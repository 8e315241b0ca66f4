"""The rules that a store must keep.

Not here: a store; the rules get one as an argument.
"""
