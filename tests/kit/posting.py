"""A provider that posts requests to a model server without the SDK, whose import takes seconds of each process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping

import httpx2
from attrs import field, frozen

from toolloop.errors import ModelError
from toolloop.providers import Request, accumulate
from toolloop.types import JSON

_OK = 200
_HEADERS = {"content-type": "application/json", "anthropic-version": "2023-06-01", "x-api-key": "test-key"}


def _client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(trust_env=False, verify=False, timeout=60)


@frozen
class PostingProvider:
    """Posts requests to a server that speaks the Messages API."""

    url: str
    _http: httpx2.AsyncClient = field(factory=_client)

    async def send(self, request: Request) -> Mapping[str, JSON]:
        """Return the whole reply."""
        return accumulate([event async for event in self.stream(request)])

    async def stream(self, request: Request) -> AsyncIterator[Mapping[str, JSON]]:
        """Yield the events of the reply, or the message, if the server does not stream."""
        body = json.dumps({**request, "stream": True})
        async with self._http.stream("POST", f"{self.url}/v1/messages", content=body, headers=_HEADERS) as answered:
            if answered.status_code != _OK:
                error = json.loads(await answered.aread())["error"]
                raise ModelError(error["message"], status=answered.status_code, kind=error["type"])
            async for line in answered.aiter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()
