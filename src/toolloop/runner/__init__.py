"""The for-loop face: `ToolRunner` and `AsyncToolRunner`."""
