"""Perform the operations of an engine: threads, tasks, waits and streams.

Not here: decisions about which operation comes next.
"""
