"""Iterate over a loop: `ToolRunner` and `AsyncToolRunner`."""
