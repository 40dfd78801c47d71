"""Requests to the upstream of a candidate: their heads, credentials, and error responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import orjson
from yarl import URL

from gateway import __version__
from gateway.config.channel import Account, Auth, Channel
from gateway.config.schema import Config, Server
from gateway.core.buffers import Buffers
from gateway.core.events import Failure, FailureKind
from gateway.core.formats import Format
from gateway.routing.health import AccountRef
from gateway.routing.router import Candidate
from gateway.upstream.connection import Origin
from gateway.upstream.credential import Credential
from gateway.upstream.pool import ConnectionPool
from gateway.upstream.response import AttemptFailed, UpstreamResponse, attempt_failed
from gateway.wire.registry import CODECS
from gateway.wire.upstream_errors import parse_http_error

MAX_ERROR_BODY: Final = 64 * 1024
"""Bytes of an error response that are read."""

MAX_JSON_BODY: Final = 64 * 1024
"""Bytes of a response of another endpoint."""

_OK: Final = 200

_MAX_CREDENTIALS: Final = 3
"""What a request is sent with, one after the other, where the upstream refuses what expires."""

_AUTH_HEADERS: Final = {
    "bearer": ("authorization", "Bearer "),
    "x-api-key": ("x-api-key", ""),
    "api-key": ("api-key", ""),
}
"""Of `Channel.auth`: the header, and what stands before the key."""

_SOURCE_AUTH: Final[Mapping[str, Auth]] = {
    **{"google": "bearer", "azure": "bearer", "oidc": "bearer", "aws": "sigv4"},
}
"""The same of credentials of these kinds, whatever their channel says."""

_MAX_CACHED_HEADS: Final = 64
"""Per account, as clients send the same few headers."""

_MAX_CACHED_HEAD: Final = 4096
"""Bytes."""


class AccountAtCapacity(Exception):
    """The account has as many requests in flight as it may have: nothing was sent."""


@dataclass(slots=True, eq=False)
class _Endpoint:
    """The values that all requests to one account share. `override_headers` win over the client's;
    `cached_heads` are request heads without their last lines."""

    channel: Channel
    origin: Origin
    base: URL
    url: URL
    headers: Mapping[str, str]
    override_headers: Mapping[str, str]
    max_concurrent: int | None
    credential: Credential | None = None
    in_flight: int = 0
    cached_heads: dict[tuple[object, ...], bytes] = field(default_factory=dict)
    model_urls: dict[tuple[str, str], URL] = field(default_factory=dict)

    def url_of(self, model: str, *, streamed: bool) -> URL:
        """The address for a request to `model`, the upstream's own name."""
        path = (streamed and self.channel.stream_path) or self.channel.path
        if path is None:
            return self.url
        return self._url_at(path, model)

    def endpoint_url(self, path: str, model: str) -> URL:
        """The address of an endpoint besides that of the format, by its path below `/v1`."""
        if (own := self.channel.path) is not None:
            path = own.partition("{model}")[0] + "{model}" + path
        elif self.channel.format is Format.MESSAGES:
            path = f"/v1{path}"
        return self._url_at(path, model)

    def _url_at(self, path: str, model: str) -> URL:
        url = self.model_urls.get((model, path))
        if url is None:
            text = str(self.base) + path.replace("{model}", quote(model, safe="@:"))
            url = URL(text, encoded=True).with_query(self.channel.query)
            self.model_urls[model, path] = url
        return url

    @property
    def at_capacity(self) -> bool:
        return self.max_concurrent is not None and self.in_flight >= self.max_concurrent

    def release(self) -> None:
        self.in_flight -= 1

    def head(
        self, url: URL, forwarded: Mapping[str, str], query: str, length: int, more: bytes
    ) -> bytes:
        """The request line and the headers, for a body of `length` bytes; `more` are further header
        lines."""
        key = (url is self.url or str(url), query, *forwarded.items())
        head = self.cached_heads.get(key)
        if head is None:
            head = self._render_head(url, forwarded, query)
            if len(head) < _MAX_CACHED_HEAD:
                if len(self.cached_heads) == _MAX_CACHED_HEADS:
                    self.cached_heads.clear()  # most have ids of ended requests or conversations
                self.cached_heads[key] = head
        return b"%b%bcontent-length: %d\r\n\r\n" % (head, more, length)

    def _render_head(self, url: URL, forwarded: Mapping[str, str], query: str) -> bytes:
        url = url.extend_query(query) if query else url
        # A proxy that reads the request needs the absolute URL.
        is_absolute = self.origin.proxy is not None and not self.origin.tls
        target = str(url) if is_absolute else url.raw_path_qs
        host = url.host_port_subcomponent or ""
        headers = {"host": host, **self.other_headers(forwarded)}
        return f"POST {target} HTTP/1.1\r\n".encode() + _header_lines(headers)

    def other_headers(self, forwarded: Mapping[str, str]) -> dict[str, str]:
        """The headers that do not authorize the request."""
        return {**self.headers, **forwarded, **self.override_headers}


class UpstreamClient:
    """The upstream accounts of one configuration; make it inside the running loop.

    It stores no cookies, follows no redirects, uses no proxies of the environment and requests no
    compression.
    """

    def __init__(self, config: Config) -> None:
        self._endpoints = {
            (channel.name, account.name): _endpoint(channel, account, config.server)
            for channel in config.channels
            for account in channel.accounts
        }
        self._pool = ConnectionPool()
        self.distrusted: Mapping[str, int] = self._pool.distrusted

    def use_credential(self, ref: AccountRef, credential: Credential) -> None:
        """Provides the credential of an account that has none in the configuration."""
        self._endpoints[ref].credential = credential

    def credentials(self) -> Iterator[tuple[AccountRef, Credential]]:
        """Yields what `use_credential` has provided."""
        for ref, endpoint in self._endpoints.items():
            if endpoint.credential is not None:
                yield ref, endpoint.credential

    async def credential_headers(self, channel: Channel, account: Account, url: URL) -> Any:
        """Returns the headers that authorize reading `url`. Raises `AttemptFailed`."""
        endpoint = self._endpoints.get((channel.name, account.name))
        if endpoint is None or (credential := endpoint.credential) is None:
            return credential_header(channel, account)
        return await credential.headers(await credential.token(), "GET", url, {}, b"")

    def channel(self, candidate: Candidate) -> Channel:
        return self._endpoints[candidate.account_ref].channel

    def at_capacity(self, ref: AccountRef) -> bool:
        """Whether the account has as many requests in flight as it may have."""
        return self._endpoints[ref].at_capacity

    def in_flight(self, ref: AccountRef) -> int:
        """Counts the requests that the account has in flight."""
        return self._endpoints[ref].in_flight

    @property
    def is_closed(self) -> bool:
        return self._pool.is_closed

    @property
    def connections(self) -> tuple[int, int]:
        """Counts the connections that are open, and those of them that are idle."""
        return self._pool.sizes

    async def close(self) -> None:
        await self._pool.close()

    async def send(
        self,
        candidate: Candidate,
        body: bytes | Buffers,
        forwarded: Mapping[str, str],
        query: str,
        on_sent: Callable[[], None] | None = None,
        trace_header: bytes = b"",
        key_id: str | None = None,
        *,
        streamed: bool = False,
        path: str | None = None,
    ) -> UpstreamResponse:
        """The upstream's response of status 200, its body unread; the caller closes it.

        `forwarded` are the client's headers; `on_sent` is called when the request is written;
        `trace_header` are the lines of its trace, if it has one; requests without a `key_id` have
        connections of their own where those of each key have; `path` is that of another endpoint
        than the format's.
        Raises `AttemptFailed` or `AccountAtCapacity`; the request is in flight until the response
        is complete or closed.
        """
        endpoint = self._endpoints[candidate.account_ref]
        if endpoint.at_capacity:
            raise AccountAtCapacity
        model = candidate.target.model
        if path is None:
            url = endpoint.url_of(model, streamed=streamed)
        else:
            url = endpoint.endpoint_url(path, model)
        endpoint.in_flight += 1
        try:
            response = await self._post(
                *(endpoint, url, body, forwarded, query, on_sent, trace_header, key_id)
            )
        except BaseException:
            endpoint.release()
            raise
        if response.is_done:
            endpoint.release()
        else:
            response.on_done = endpoint.release
        return response

    async def post_json(
        self,
        candidate: Candidate,
        path: str,
        body: bytes | Buffers,
        forwarded: Mapping[str, str],
        query: str,
        trace_header: bytes = b"",
    ) -> dict[str, Any]:
        """The JSON object that another endpoint responds with; `path` is relative to the channel's
        `base_url`. Raises `AttemptFailed`."""
        endpoint = self._endpoints[candidate.account_ref]
        url = (endpoint.base / path.lstrip("/")).with_query(endpoint.channel.query)
        response = await self._post(endpoint, url, body, forwarded, query, None, trace_header)
        async with response:
            return _parse_object(await response.read_body(MAX_JSON_BODY))

    async def _post(
        self,
        endpoint: _Endpoint,
        url: URL,
        body: bytes | Buffers,
        forwarded: Mapping[str, str],
        query: str,
        on_sent: Callable[[], None] | None,
        trace_header: bytes,
        key_id: str | None = None,
    ) -> UpstreamResponse:
        connect_timeout, origin = endpoint.channel.timeouts.connect, endpoint.origin
        if endpoint.channel.reuse == "within_key":
            origin = origin._replace(scope=key_id)
        credential, token, left, more = endpoint.credential, None, _MAX_CREDENTIALS, trace_header
        while True:
            if credential is not None:
                token = await credential.token()
                target = url.extend_query(query) if query else url
                others = endpoint.other_headers(forwarded)
                added = await credential.headers(token, "POST", target, others, body)
                more = trace_header + _header_lines(added)
            head = endpoint.head(url, forwarded, query, len(body), more)
            response = await self._pool.send(origin, head, body, connect_timeout, on_sent)
            if response.status == _OK:
                return response
            date = response.header(b"date") or ""
            failure = await _read_error(response)
            left -= 1
            if credential is None or not left:
                raise AttemptFailed(failure)
            if not await credential.replace(token, failure, date):
                raise AttemptFailed(failure)


def _parse_object(body: bytes) -> dict[str, Any]:
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        data = None
    if not isinstance(data, dict):
        message = "the response is no JSON object"
        raise AttemptFailed(Failure(kind=FailureKind.PAGE, status=_OK, message=message))
    return data


async def _read_error(response: UpstreamResponse) -> Failure:
    body = b""
    try:
        while len(body) < MAX_ERROR_BODY and (chunk := await response.read_chunk()):
            body += chunk
    except AttemptFailed:
        pass  # the status is enough
    finally:
        response.close()
    return parse_http_error(response.status, response.headers, body)


def _header_lines(headers: Mapping[str, str]) -> bytes:
    lines = [*(f"{name}: {_one_line(value)}" for name, value in headers.items()), ""]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape")


def _one_line(value: str) -> str:
    """Raises `AttemptFailed` if a header's value would begin another header."""
    if "\r" in value or "\n" in value or "\0" in value:
        raise attempt_failed(FailureKind.MALFORMED, "a header value has a line break")
    return value


def credential_header(channel: Channel, account: Account) -> dict[str, str]:
    """The header with the account's key; empty if it has none, or one that expires."""
    key = account.static_key
    return header_of(channel, account, key) if key else {}


def header_of(channel: Channel, account: Account, key: str) -> dict[str, str]:
    """The header with a key of the account."""
    auth = account.auth or channel.auth
    if account.source is not None:
        auth = account.auth or _SOURCE_AUTH.get(account.source.kind, channel.auth)
    name, prefix = _AUTH_HEADERS.get(auth or CODECS[channel.format].auth, ("", ""))
    if not name:
        return {}
    return {name: prefix + key}


def _endpoint(channel: Channel, account: Account, server: Server) -> _Endpoint:
    headers = {
        "content-type": "application/json",
        "accept": "*/*",
        "accept-encoding": "identity",
        "user-agent": channel.user_agent or f"model-gateway/{__version__}",
    }
    codec = CODECS[channel.format]
    headers |= credential_header(channel, account)
    extra = {name.lower(): value.get_secret_value() for name, value in channel.headers.items()}
    headers.update(extra)
    version = channel.version_header
    clients = {server.version_headers[0], server.beta_headers[0]}
    overrides = {name: value for name, value in extra.items() if name not in clients}
    if version is not None:
        overrides[server.version_headers[0]] = version
    headers.update(overrides)
    base = channel.base_url.rstrip("/")
    url = URL(base + codec.upstream_path).with_query(channel.query)
    return _Endpoint(
        channel=channel,
        origin=_origin(url, channel.proxy)._replace(scope=None if channel.reuse == "never" else ""),
        base=URL(base),
        url=url,
        headers=headers,
        override_headers=overrides,
        max_concurrent=account.concurrency,
    )


def _origin(url: URL, proxy: str | None) -> Origin:
    host, port, tls = url.raw_host or "", url.port or 0, url.scheme == "https"
    if proxy is None:
        return Origin(host, port, tls)
    proxy_url = URL(proxy)
    return Origin(host, port, tls, (proxy_url.raw_host or "", proxy_url.port or 80))
