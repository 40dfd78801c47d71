"""Searches the web with the configured endpoint, whose interface is SearXNG's."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar

from gateway import __version__
from gateway.config.search import SearchEndpoint
from gateway.core.prompt import WebSearch
from gateway.wire.json.fields import lenient_object
from gateway.wire.json.limits import load_json
from gateway.wire.search.results import SearchResult, parse_results, restricted_query

MAX_BODY: Final = 2 * 1024 * 1024
"""Bytes of an answer."""

_OK: Final = 200
_TOO_MANY: Final = 429
_PIECE: Final = 64 * 1024


class SearchFailed(Exception):
    """`code` is that of the client's result block; the text is for operators."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code


class SearchClient:
    """Follows no redirects, stores no cookies, uses no proxies of the environment and requests no
    compression. Make it inside the running loop."""

    def __init__(self, endpoint: SearchEndpoint) -> None:
        self.endpoint = endpoint
        self._slots = asyncio.Semaphore(endpoint.concurrency)
        self._session: ClientSession | None = None

    async def search(self, query: str, search: WebSearch) -> list[SearchResult]:
        """The results that the lists of domains admit, maybe none. Raises `SearchFailed`."""
        try:
            async with asyncio.timeout(self.endpoint.timeout), self._slots:
                body = await self._fetch(restricted_query(query, search))
        except TimeoutError:
            raise SearchFailed("unavailable", "it took too long") from None
        except (ClientError, OSError, ValueError) as error:
            raise SearchFailed("unavailable", type(error).__name__) from None
        try:
            answer = lenient_object(load_json(body))
        except ValueError:
            raise SearchFailed("unavailable", "the answer is no JSON") from None
        entries = answer.get("results")
        if not isinstance(entries, list):
            raise SearchFailed("unavailable", "the answer has no list of results")
        return parse_results(entries, search, self.endpoint.max_results)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _fetch(self, query: str) -> bytes:
        session = self._session
        if session is None:
            session = self._session = self._new_session()
        parameters = {"q": query, "format": "json"}
        async with session.get(
            self.endpoint.url, params=parameters, allow_redirects=False
        ) as response:
            if response.status == _TOO_MANY:
                raise SearchFailed("too_many_requests", "status 429")
            if response.status != _OK:
                raise SearchFailed("unavailable", f"status {response.status}")
            if response.headers.get("content-encoding", "identity") != "identity":
                raise SearchFailed("unavailable", "the answer is compressed")
            body = b""
            async for piece in response.content.iter_chunked(_PIECE):
                body += piece
                if len(body) > MAX_BODY:
                    raise SearchFailed("unavailable", f"more than {MAX_BODY} bytes")
            return body

    def _new_session(self) -> ClientSession:
        endpoint = self.endpoint
        headers = {
            "accept": "application/json",
            "accept-encoding": "identity",
            "user-agent": f"model-gateway/{__version__}",
        }
        if endpoint.key is not None:
            headers["authorization"] = f"Bearer {endpoint.key.get_secret_value()}"
        headers |= {name: value.get_secret_value() for name, value in endpoint.headers.items()}
        return ClientSession(
            headers=headers,
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            timeout=ClientTimeout(total=None),
        )
