"""One attempt: a request to a candidate's upstream, and its reply or the failure.

It must not decide what follows from a failure, and it never sees the client's connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any, Final

import aiohttp
import orjson
from multidict import CIMultiDict
from yarl import URL

from gateway import __version__
from gateway.config import Account, Channel, Config, Server, Timeouts
from gateway.core.failure import Failure, FailureKind
from gateway.core.formats import Format
from gateway.routing.health import Place
from gateway.routing.router import Candidate
from gateway.wire.codecs import CODECS

MAX_ERROR_BODY: Final = 64 * 1024
"""Bytes of an upstream's error that are read."""

MAX_ANSWER: Final = 64 * 1024
"""Bytes of what is no reply of a model."""

_LARGE_BODY: Final = 2**20

_POOL_KEEPALIVE: Final = 10.0
"""Seconds that an idle connection is kept: below the 15 to 60 s after which servers hang up."""


_DNS_CACHE: Final = 60

_REUSED: Final = ContextVar("_REUSED", default=False)
"""Whether the task's last request went out on a connection that was used before."""

_LENT: Final = "lent before by the gateway"
"""The mark of a connection, kept on it: looking it up elsewhere costs ten times as much."""


class AttemptFailed(Exception):
    """The attempt gave no reply."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class AccountFull(Exception):
    """The account already has as many requests as it may have: nothing was sent."""


@dataclass(frozen=True, slots=True)
class _Target:
    """What every request to one account has in common; `imposed` are headers that go before the
    client's."""

    channel: Channel
    base: URL
    url: URL
    headers: CIMultiDict[str]
    imposed: Mapping[str, str]
    proxy: URL | None
    timeout: aiohttp.ClientTimeout
    most: int | None


class Line:
    """The outside line of one configuration; open it inside the running loop.

    Nothing of a client's connection is reused: no cookies, no redirects, no proxies from the
    environment, no compression asked for.
    """

    def __init__(self, config: Config) -> None:
        self._targets = {
            (channel.name, account.name): _target(channel, account, config.server)
            for channel in config.channels
            for account in channel.accounts
        }
        self._under_way: Counter[Place] = Counter()
        self._pooled = _session(_Pool())
        self._fresh = _session(
            aiohttp.TCPConnector(limit=0, ttl_dns_cache=_DNS_CACHE, force_close=True)
        )

    def channel(self, candidate: Candidate) -> Channel:
        """How the candidate's channel wants to be asked."""
        return self._targets[candidate.place].channel

    def timeouts(self, candidate: Candidate) -> Timeouts:
        return self.channel(candidate).timeouts

    def busy(self, place: Place) -> bool:
        """Whether the account has as many requests as it may have."""
        most = self._targets[place].most
        return most is not None and self._under_way[place] >= most

    def under_way(self, place: Place) -> int:
        """How many requests the account has."""
        return self._under_way[place]

    async def close(self) -> None:
        await self._pooled.close()
        await self._fresh.close()

    async def send(
        self, candidate: Candidate, body: bytes, crossing: Mapping[str, str], query: str
    ) -> aiohttp.ClientResponse:
        """The upstream's answer of status 200, its body still unread; the caller releases it.

        `crossing` are the client's headers that may go upstream. Raises `AttemptFailed`, or
        `AccountFull` where the account is busy; the request counts there until the answer is
        complete or released. A pooled connection that turns out stale is replaced once: no byte of
        an answer came over it.
        """
        place = candidate.place
        target = self._targets[place]
        if self.busy(place):
            raise AccountFull
        self._under_way[place] += 1
        try:
            answer = await self._post(candidate, target.url, body, crossing, query)
        except BaseException:
            self._under_way[place] -= 1
            raise
        if answer.connection is None:  # it is complete: all of it came with its head
            self._under_way[place] -= 1
        else:
            answer.connection.add_callback(partial(self._under_way.subtract, (place,)))
        return answer

    async def ask(
        self, candidate: Candidate, path: str, body: bytes, crossing: Mapping[str, str], query: str
    ) -> dict[str, Any]:
        """The JSON object that another endpoint of the upstream answers; `path` is relative to the
        channel's `base_url`. Raises `AttemptFailed`."""
        url = self._targets[candidate.place].base / path.lstrip("/")
        answer = await self._post(candidate, url, body, crossing, query)
        async with answer:
            return _json_object(await read_whole(answer, MAX_ANSWER))

    async def _post(
        self,
        candidate: Candidate,
        url: URL,
        body: bytes,
        crossing: Mapping[str, str],
        query: str,
    ) -> aiohttp.ClientResponse:
        target = self._targets[candidate.place]
        headers = target.headers
        if crossing:
            headers = CIMultiDict({**headers, **crossing, **target.imposed})
        url = url.with_query(query) if query else url
        with failures():
            try:
                answer = await self._pooled.post(
                    url,
                    data=_payload(body),
                    headers=headers,
                    proxy=target.proxy,
                    timeout=target.timeout,
                    allow_redirects=False,
                )
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as stale:
                if not _went_stale(stale):
                    raise
                answer = await self._fresh.post(
                    url,
                    data=_payload(body),
                    headers=headers,
                    proxy=target.proxy,
                    timeout=target.timeout,
                    allow_redirects=False,
                )
        if answer.status != 200:
            raise AttemptFailed(await _refusal(answer, candidate.format))
        return answer


def _went_stale(error: aiohttp.ClientError) -> bool:
    """Whether a pooled connection broke before a byte of an answer came: then asking again cannot
    ask twice. A head that was begun is the disconnection's message."""
    if not _REUSED.get() or isinstance(error, aiohttp.ClientConnectorError):
        return False
    return not isinstance(error, aiohttp.ServerDisconnectedError) or isinstance(error.message, str)


@contextmanager
def failures() -> Iterator[None]:
    """Turns what the client library raises into `AttemptFailed`."""
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        raise _failed(FailureKind.TLS, f"the certificate is not accepted: {error}") from error
    except aiohttp.ClientConnectorSSLError as error:
        raise _failed(FailureKind.TLS, f"the TLS handshake failed: {error}") from error
    except aiohttp.ConnectionTimeoutError as error:
        raise _failed(FailureKind.CONNECT, f"no connection in time: {error}") from error
    except aiohttp.ServerTimeoutError as error:
        raise _failed(FailureKind.TIMEOUT, f"the upstream fell silent: {error}") from error
    except (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError) as error:
        raise _failed(FailureKind.CONNECT, f"no connection: {error}") from error
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
        raise _failed(FailureKind.DISCONNECT, f"the connection broke: {error}") from error
    except aiohttp.ClientPayloadError as error:
        raise _failed(FailureKind.CUT, f"the body broke off: {error}") from error
    except (aiohttp.ClientError, ValueError) as error:
        raise _failed(FailureKind.GARBAGE, f"no sound answer: {error}") from error


async def read_whole(answer: aiohttp.ClientResponse, limit: int) -> bytes:
    """The answer's body, at most `limit` bytes after decoding. Raises `AttemptFailed`."""
    chunks: list[bytes] = []
    size = 0
    with failures():
        while chunk := await answer.content.readany():
            chunks.append(chunk)
            size += len(chunk)
            if size > limit:
                raise _failed(FailureKind.TOO_LARGE, f"the body has more than {limit} bytes")
    return b"".join(chunks)


def unread(answer: aiohttp.ClientResponse) -> bytes:
    """What came before the body broke off: aiohttp raises the break at once and hides the bytes
    that stand before it, the end of the reply maybe among them."""
    return answer.content._read_nowait(-1)


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        data = None
    if not isinstance(data, dict):
        raise AttemptFailed(
            Failure(kind=FailureKind.GARBAGE, status=200, message="the answer is no JSON object")
        )
    return data


def _payload(body: bytes) -> bytes | BytesIO:
    """A large body is written piece by piece, so that the loop goes on meanwhile."""
    return BytesIO(body) if len(body) > _LARGE_BODY else body


def _failed(kind: FailureKind, message: str) -> AttemptFailed:
    return AttemptFailed(Failure(kind=kind, message=message[:2000]))


async def _refusal(answer: aiohttp.ClientResponse, spoken: Format) -> Failure:
    body = b""
    try:
        # Whatever breaks while it is read, the status alone says enough.
        with suppress(aiohttp.ClientError, TimeoutError):
            while len(body) < MAX_ERROR_BODY and (chunk := await answer.content.readany()):
                body += chunk
    finally:
        answer.close()
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return CODECS[spoken].parse_error(answer.status, headers, body)


def _target(channel: Channel, account: Account, door: Server) -> _Target:
    headers = CIMultiDict(
        {
            "content-type": "application/json",
            "accept-encoding": "identity",
            "user-agent": channel.user_agent or f"model-gateway/{__version__}",
        }
    )
    key = account.key.get_secret_value()
    if channel.format is Format.MESSAGES:
        headers["x-api-key"] = key
    else:
        headers["authorization"] = f"Bearer {key}"
    headers.update({name: value.get_secret_value() for name, value in channel.headers.items()})
    version = channel.version_header
    imposed = {door.version_headers[0]: version} if version is not None else {}
    headers.update(imposed)
    connect = channel.timeouts.connect
    base = channel.base_url.rstrip("/")
    return _Target(
        channel=channel,
        base=URL(base),
        url=URL(base + CODECS[channel.format].path),
        headers=headers,
        imposed=imposed,
        proxy=URL(channel.proxy) if channel.proxy is not None else None,
        timeout=aiohttp.ClientTimeout(total=None, connect=connect, sock_connect=connect),
        most=account.concurrency,
    )


class _Pool(aiohttp.TCPConnector):
    """Notes whether the connection that it lends has been used before."""

    def __init__(self) -> None:
        super().__init__(limit=0, ttl_dns_cache=_DNS_CACHE, keepalive_timeout=_POOL_KEEPALIVE)

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[aiohttp.tracing.Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  # the library's own signature
    ) -> aiohttp.connector.Connection:
        _REUSED.set(False)
        connection = await super().connect(req, traces, timeout)
        mark = vars(connection.protocol)
        _REUSED.set(_LENT in mark)
        mark[_LENT] = True
        return connection


def _session(connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        max_line_size=64 * 1024,
        max_field_size=64 * 1024,
        max_headers=256,
    )
