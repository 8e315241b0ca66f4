"""Histories as the API reads them: the types of content blocks, the rules, and repair.

Not here: a loop, a store or a request; a history is a plain list here.
"""
