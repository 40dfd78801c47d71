"""What upstreams get of native conversations, compared with what the agent has sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import orjson
from aiohttp import ClientSession

from tests.support.upstream import ReceivedRequest, Response, scripted_upstream

_NUMBER: Final = "x-stainless-number"
"""A header that reaches upstreams of the agent's own format alone."""
_HEAD: Final = ("system", "instructions", "tools", "thinking", "reasoning")
_OF_CONNECTIONS: Final = ("connection", "content-length", "host", "transfer-encoding")


def _hashes(fields: dict[str, Any]) -> list[str]:
    """Those of the conversation up to each of its messages."""
    hashed = sha256(orjson.dumps([fields.get(name) for name in _HEAD]))
    hashes = []
    for message in fields.get("messages") or fields.get("input") or []:
        hashed.update(orjson.dumps(message))
        hashes.append(hashed.hexdigest())
    return hashes


def _has_compaction(fields: dict[str, Any]) -> bool:
    items = fields.get("input") or []
    return any(str(item.get("type")).startswith("compaction") for item in items)


@dataclass
class Prefixes:
    """`compared` requests of the native lane; `continued` of them begin with an earlier one, the
    others with what the agent has made of it; `changed` are those that are not as the agent sent
    them. Where no upstream `compacts`, the gateway writes and reads compactions."""

    compacts: bool
    compared: int = 0
    continued: int = 0
    changed: list[str] = field(default_factory=list)
    _of_agent: list[list[str]] = field(default_factory=list)
    _whole: set[str] = field(default_factory=set)

    def compare(self, request: ReceivedRequest) -> None:
        """Of a request that has come to the upstream."""
        number = request.headers.get(_NUMBER)
        hashes = _hashes(request.fields)
        if number is None or not hashes:
            return
        self.compared += 1
        self.continued += any(each in self._whole for each in hashes[:-1])
        self._whole.add(hashes[-1])
        of_agent = self._of_agent[int(number)]
        if hashes != of_agent:
            same = sum(a == b for a, b in zip(hashes, of_agent, strict=False))
            self.changed.append(f"request {number} from message {same} of {len(of_agent)}")

    @asynccontextmanager
    async def recorded(self, address: str) -> AsyncIterator[str]:
        """An address in place of the gateway's, at which each request gets a number."""

        async def relay(request: ReceivedRequest) -> Response:
            headers = request.headers.copy()
            for name in _OF_CONNECTIONS:
                headers.popall(name, None)
            if self.compacts or not _has_compaction(request.fields):
                headers[_NUMBER] = str(len(self._of_agent))
            self._of_agent.append(_hashes(request.fields))
            url, data = address + request.target, request.body or None
            async with http.request(request.method, url, data=data, headers=headers) as answer:
                body = await answer.read()
            headers = answer.headers.copy()
            for name in _OF_CONNECTIONS:
                headers.popall(name, None)
            return Response(status=answer.status, headers=headers, chunks=(body,))

        async with ClientSession(auto_decompress=False) as http, scripted_upstream(relay) as front:
            yield front.address
