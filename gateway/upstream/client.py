"""One attempt: a request to a candidate's upstream, and its answer or the failure.

It must not decide what follows from a failure, and it never sees the client's connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import orjson
from yarl import URL

from gateway import __version__
from gateway.config import Account, Channel, Config, Server, Timeouts
from gateway.core.failure import Failure, FailureKind
from gateway.core.formats import Format
from gateway.routing.health import Place
from gateway.routing.router import Candidate
from gateway.upstream.answer import Answer, AttemptFailed
from gateway.upstream.pool import Door, Pool
from gateway.wire.codecs import CODECS

__all__ = ["AccountFull", "Answer", "AttemptFailed", "Line", "read_whole"]

MAX_ERROR_BODY: Final = 64 * 1024
"""Bytes of an upstream's error that are read."""

MAX_ANSWER: Final = 64 * 1024
"""Bytes of what is no reply of a model."""

_OK: Final = 200

_HEADS: Final = 64
"""Beginnings of requests that are kept for each account: clients send the same few headers."""


class AccountFull(Exception):
    """The account already has as many requests as it may have: nothing was sent."""


@dataclass(slots=True, eq=False)
class _Target:
    """What every request to one account has in common; `imposed` are headers that go before the
    client's, `heads` the beginnings of requests that were made before."""

    channel: Channel
    door: Door
    base: URL
    url: URL
    headers: Mapping[str, str]
    imposed: Mapping[str, str]
    most: int | None
    heads: dict[tuple[object, ...], bytes] = field(default_factory=dict)

    def head(self, url: URL, crossing: Mapping[str, str], query: str, size: int) -> bytes:
        """The request line and the headers."""
        key = (url is self.url or str(url), query, *crossing.items())
        head = self.heads.get(key)
        if head is None:
            head = self._head(url, crossing, query)
            if len(self.heads) < _HEADS:
                self.heads[key] = head
        return b"%bcontent-length: %d\r\n\r\n" % (head, size)

    def _head(self, url: URL, crossing: Mapping[str, str], query: str) -> bytes:
        url = url.with_query(query) if query else url
        # A proxy that reads along is told the whole address.
        place = str(url) if self.door.proxy is not None and not self.door.tls else url.raw_path_qs
        headers = {"host": url.host_port_subcomponent, **self.headers, **crossing, **self.imposed}
        lines = [
            f"POST {place} HTTP/1.1",
            *(f"{name}: {value}" for name, value in headers.items()),
            "",
        ]
        return "\r\n".join(lines).encode("utf-8", "surrogateescape")


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
        self._gone = {place: partial(self._one_less, place) for place in self._targets}
        self._pool = Pool()

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

    @property
    def closed(self) -> bool:
        return self._pool.closed

    async def close(self) -> None:
        await self._pool.close()

    async def send(
        self, candidate: Candidate, body: bytes, crossing: Mapping[str, str], query: str
    ) -> Answer:
        """The upstream's answer of status 200, its body still unread; the caller closes it.

        `crossing` are the client's headers that may go upstream. Raises `AttemptFailed`, or
        `AccountFull` where the account is busy; the request counts there until the answer is
        complete or closed.
        """
        place = candidate.place
        target = self._targets[place]
        if self.busy(place):
            raise AccountFull
        self._under_way[place] += 1
        less = self._gone[place]
        try:
            answer = await self._post(candidate, target, target.url, body, crossing, query)
        except BaseException:
            less()
            raise
        if answer.complete_line:
            less()
        else:
            answer.ended = less
        return answer

    async def ask(
        self, candidate: Candidate, path: str, body: bytes, crossing: Mapping[str, str], query: str
    ) -> dict[str, Any]:
        """The JSON object that another endpoint of the upstream answers; `path` is relative to the
        channel's `base_url`. Raises `AttemptFailed`."""
        target = self._targets[candidate.place]
        url = target.base / path.lstrip("/")
        answer = await self._post(candidate, target, url, body, crossing, query)
        async with answer:
            return _json_object(await answer.read(MAX_ANSWER))

    def _one_less(self, place: Place) -> None:
        self._under_way[place] -= 1

    async def _post(
        self,
        candidate: Candidate,
        target: _Target,
        url: URL,
        body: bytes,
        crossing: Mapping[str, str],
        query: str,
    ) -> Answer:
        head = target.head(url, crossing, query, len(body))
        answer = await self._pool.ask(target.door, head, body, target.channel.timeouts.connect)
        if answer.status != _OK:
            raise AttemptFailed(await _refusal(answer, candidate.format))
        return answer


async def read_whole(answer: Answer, limit: int) -> bytes:
    """The answer's body, at most `limit` bytes after decoding. Raises `AttemptFailed`."""
    return await answer.read(limit)


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


async def _refusal(answer: Answer, spoken: Format) -> Failure:
    body = b""
    try:
        while len(body) < MAX_ERROR_BODY and (chunk := await answer.readany()):
            body += chunk
    except AttemptFailed:
        pass  # whatever breaks while it is read, the status alone says enough
    finally:
        answer.close()
    return CODECS[spoken].parse_error(answer.status, answer.headers, body)


def _target(channel: Channel, account: Account, door: Server) -> _Target:
    headers = {
        "content-type": "application/json",
        "accept": "*/*",
        "accept-encoding": "identity",
        "user-agent": channel.user_agent or f"model-gateway/{__version__}",
    }
    key = account.key.get_secret_value()
    if channel.format is Format.MESSAGES:
        headers["x-api-key"] = key
    else:
        headers["authorization"] = f"Bearer {key}"
    extra = {name.lower(): value.get_secret_value() for name, value in channel.headers.items()}
    headers.update(extra)
    version = channel.version_header
    imposed = {door.version_headers[0]: version} if version is not None else {}
    headers.update(imposed)
    base = channel.base_url.rstrip("/")
    url = URL(base + CODECS[channel.format].path)
    return _Target(
        channel=channel,
        door=_door(url, channel.proxy),
        base=URL(base),
        url=url,
        headers=headers,
        imposed=imposed,
        most=account.concurrency,
    )


def _door(url: URL, proxy: str | None) -> Door:
    through = URL(proxy) if proxy is not None else None
    return Door(
        url.raw_host or "",
        url.port or 0,
        url.scheme == "https",
        (through.raw_host or "", through.port or 80) if through is not None else None,
    )
