"""Convert return values and exceptions of tools to the content of a `tool_result`.

Not here: running a tool.
"""
