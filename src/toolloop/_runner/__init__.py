"""Iterate over a loop: `ToolRunner` and `AsyncToolRunner`.

Not here: rules of a loop; a runner uses the public handles' parts.
"""
