"""Perform the operations of an engine: threads, tasks, waits and streams. Decide nothing."""
