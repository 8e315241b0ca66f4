"""An MCP server over stdio that sends what it was told to send, right or wrong: `mcp_raw_server.py ANSWERS`.

ANSWERS is an object in JSON: the result of each method, and `calls`, the result of each tool. What has none there is
never answered.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main(answers: dict[str, Any]) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        asked = message["params"]["name"] if method == "tools/call" else method
        results = answers["calls"] if method == "tools/call" else answers
        if asked in results:
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": results[asked]}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
