"""Tools of MCP servers as tools of a loop: `pip install 'toolloop[mcp]'`.

`open_mcp` (for `ToolLoopHandle`) and `aopen_mcp` (for `AsyncToolLoopHandle`) connect to a server and give its tools;
`mcp_tools` gives the tools of a session that is open already. The list of tools is read once: it does not change under
a loop.

What a server says of its own tools (that one is read-only, say) is a hint of somebody who need not be trusted (source:
MCP specification, tool annotations). So nothing is loosened by it: the caller says what needs approval.
"""

from toolloop.tools.mcp.connecting import aopen_mcp, mcp_tools, open_mcp
from toolloop.tools.mcp.options import McpOptions

__all__ = ["McpOptions", "aopen_mcp", "mcp_tools", "open_mcp"]
