"""An HTTP client as a program: lines of JSON in, method, path and body; lines out, status and body."""

from __future__ import annotations

import json
import sys

import httpx2


def main(url: str, user: str) -> None:
    with httpx2.Client(base_url=url, headers={"x-user": user}, timeout=60, trust_env=False) as client:
        for line in sys.stdin:
            method, path, body = json.loads(line)
            try:
                answered = client.request(method, path, json=body)
                said = [answered.status_code, answered.json()]
            except httpx2.TransportError as error:
                said = [0, type(error).__name__]
            sys.stdout.write(json.dumps(said) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
