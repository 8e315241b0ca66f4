"""Turn the values that tools return or raise into the content of a `tool_result`."""
