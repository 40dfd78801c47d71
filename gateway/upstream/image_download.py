"""Downloads images for upstreams that take no web addresses.

Clients choose the addresses: only http and https, some ports, no credentials, and public hosts
(`address_guard`), after each redirect again. Every step is bounded in time and in bytes. What was
downloaded is kept for a while, as the next request of a conversation has the same images.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Final
from weakref import WeakValueDictionary

from aiohttp import (
    ClientError,
    ClientResponse,
    ClientSession,
    DummyCookieJar,
    TCPConnector,
    hdrs,
)
from aiohttp.abc import AbstractResolver
from yarl import URL

from gateway import __version__
from gateway.config.schema import Images
from gateway.upstream.public_addresses import (
    GuardedResolver,
    NameLookup,
    SocketFactory,
    guarded_factory,
)

MAX_REDIRECTS: Final = 3
TIMEOUT: Final = 10.0
"""Seconds for one image, redirects included."""
PER_KEY: Final = 4
ALL: Final = 16
"""Downloads at a time, of one key and of all."""
MAX_CACHED: Final = 64 * 2**20
CACHE_TIME: Final = 3600.0
"""Bytes of downloaded images that are kept, and for how many seconds."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_OK: Final = 200
_PIECE: Final = 64 * 1024
_HEADERS: Final = {
    hdrs.ACCEPT: "image/*",
    hdrs.ACCEPT_ENCODING: "identity",
    hdrs.USER_AGENT: f"model-gateway/{__version__}",
}


class DownloadFailed(Exception):
    """The text is for the operator."""


class DownloadTooLarge(DownloadFailed):
    """The file has more bytes than it may have."""


class ImageDownloader:
    """`resolver` finds addresses of names, `make_socket` makes sockets for them: both are guarded
    here. For one event loop."""

    def __init__(
        self,
        resolver: AbstractResolver | None = None,
        make_socket: SocketFactory | None = None,
    ) -> None:
        self._resolver = resolver or NameLookup()
        self._make_socket = make_socket or (lambda info: socket.socket(*info[:3]))
        self._running: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._slots = asyncio.Semaphore(ALL)
        self._cache = _Cache()

    async def download(
        self, key: str, url: str, settings: Images, max_bytes: int, book: Callable[[int], None]
    ) -> bytes:
        """The body of the response. `key` is the id of the client's key; `book` is called with the
        number of bytes that were received, and may raise. Raises `DownloadFailed`."""
        now = asyncio.get_running_loop().time()
        if (cached := self._cache.get(key, url, now)) is not None:
            book(len(cached))
            return cached
        slots = self._running.setdefault(key, asyncio.Semaphore(PER_KEY))
        try:
            async with slots, self._slots, asyncio.timeout(TIMEOUT):
                body = await self._follow(url, settings, max_bytes, book)
        except TimeoutError:
            raise DownloadFailed(f"not complete after {TIMEOUT:.0f} s") from None
        except (ClientError, OSError, ValueError) as error:
            reason = error.__cause__ or error  # the library wraps errors of connecting
            raise DownloadFailed(f"{type(reason).__name__}: {reason}"[:300]) from None
        self._cache.add(key, url, body, now)
        return body

    async def _follow(
        self, address: str, settings: Images, max_bytes: int, book: Callable[[int], None]
    ) -> bytes:
        url = URL(address)
        allowed = settings.allowed_networks
        connector = TCPConnector(
            resolver=GuardedResolver(self._resolver, allowed),
            socket_factory=guarded_factory(allowed, self._make_socket),
            use_dns_cache=False,
            force_close=True,
        )
        async with ClientSession(
            connector=connector,
            cookie_jar=DummyCookieJar(),
            headers=_HEADERS,
            auto_decompress=False,
            trust_env=False,
        ) as session:
            for _ in range(MAX_REDIRECTS + 1):
                _check_url(url, settings)
                async with session.get(url, allow_redirects=False) as response:
                    if response.status not in _REDIRECTS:
                        return await _read(response, max_bytes, book)
                    url = url.join(URL(response.headers.get(hdrs.LOCATION, "")))
        raise DownloadFailed("too many redirects")


def _check_url(url: URL, settings: Images) -> None:
    if url.scheme not in ("http", "https") or not url.host:
        raise DownloadFailed(f"no http or https address: {url.scheme!r}")
    if url.user is not None or url.password is not None:
        raise DownloadFailed("a URL with credentials")
    if url.port not in settings.allowed_ports:
        raise DownloadFailed(f"port {url.port} is not allowed")


async def _read(response: ClientResponse, max_bytes: int, book: Callable[[int], None]) -> bytes:
    if response.status != _OK:
        raise DownloadFailed(f"status {response.status}")
    if (response.content_length or 0) > max_bytes:
        raise DownloadTooLarge(f"{response.content_length:,} bytes > {max_bytes:,} bytes")
    body = bytearray()
    async for piece in response.content.iter_chunked(_PIECE):
        body += piece
        if len(body) > max_bytes:
            raise DownloadTooLarge(f"more than {max_bytes:,} bytes")
        book(len(piece))
    return bytes(body)


class _Cache:
    """Images by a hash of key and URL; the least recently used are forgotten."""

    def __init__(self) -> None:
        self._entries: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()
        self._size = 0

    def get(self, key: str, url: str, now: float) -> bytes | None:
        name = _digest(key, url)
        expires, body = self._entries.get(name, (0.0, b""))
        if expires <= now:
            return None
        self._entries.move_to_end(name)
        return body

    def add(self, key: str, url: str, body: bytes, now: float) -> None:
        name = _digest(key, url)
        self._remove(name)
        self._entries[name] = now + CACHE_TIME, body
        self._size += len(body)
        while self._size > MAX_CACHED:
            self._remove(next(iter(self._entries)))

    def _remove(self, name: bytes) -> None:
        _, body = self._entries.pop(name, (0.0, b""))
        self._size -= len(body)


def _digest(key: str, url: str) -> bytes:
    return blake2b(f"{key}\0{url}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
