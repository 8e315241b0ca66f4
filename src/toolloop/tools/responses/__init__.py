"""What a tool returns, and how it becomes the content of a `tool_result`."""
