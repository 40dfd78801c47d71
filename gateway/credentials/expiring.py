"""One credential that expires: renewed before its end, once for all requests that wait for it."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from yarl import URL

from gateway.core.buffers import Buffers
from gateway.core.events import Failure, FailureKind
from gateway.credentials.sigv4 import Signer
from gateway.credentials.sources import AwsKeys, Issued, failure_reason
from gateway.upstream.response import attempt_failed

_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_AWS_KEYS: Final = re.compile(
    r"expired|signature|security token|not yet current|UnrecognizedClient", re.IGNORECASE
)
"""In a 403 of AWS: it is about the keys, or when they were used."""


@dataclass(frozen=True, slots=True)
class Timing:
    """In seconds. `lead`: how long before its end a credential is renewed, at most a fifth of its
    time; sources that keep one themselves have a new one by then. `retry`: after a failed renewal,
    doubled up to `max_retry`. `wait`: how long requests wait for a credential. `min_age`: a
    credential that was refused and is younger is not renewed."""

    lead: float = 225.0
    retry: float = 5.0
    max_retry: float = 60.0
    wait: float = 10.0
    min_age: float = 10.0


@dataclass(slots=True, eq=False)
class Token:
    """Times are those of the loop."""

    value: str | AwsKeys
    issued_at: float
    ends_at: float


@dataclass(frozen=True, slots=True)
class Listener:
    """What is told of a credential: `issued`, with the secrets that are valid now, before a new
    one is used; `renewed`, when there is a new one, or one again; `failed`, with the reason and the
    seconds for which the old one is still valid, 0 if there is none."""

    issued: Callable[[tuple[str, ...]], Awaitable[None]]
    renewed: Callable[[], None]
    failed: Callable[[str, float], None]


class ExpiringCredential(ABC):
    """Make it inside the running loop. `ttl` are the seconds for which a credential is valid that
    does not say so itself; `clock` returns Unix seconds."""

    def __init__(
        self,
        issue: Callable[[], Awaitable[Issued]],
        ttl: float,
        listener: Listener,
        timing: Timing,
        clock: Callable[[], float],
    ) -> None:
        self._issue, self._ttl, self._listener, self._timing = issue, ttl, listener, timing
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._current: Token | None = None
        self._previous: Token | None = None
        self._refreshing: asyncio.Future[None] | None = None
        self._failure = ""
        self._failures = 0
        self._retry_at = -inf
        self._timer: asyncio.TimerHandle | None = None
        self.refreshes: Counter[str] = Counter()

    @property
    def expires_at(self) -> float | None:
        if self._current is None:
            return None
        return self._clock() + self._current.ends_at - self._loop.time()

    async def token(self) -> Token:
        if (token := self._valid(self._current)) is not None:
            return token
        if self._refreshing is not None or self._loop.time() >= self._retry_at:
            await self._renewed()
        if (token := self._valid(self._current)) is None:
            reason = self._failure or "its source does not answer"
            raise attempt_failed(FailureKind.CREDENTIAL, f"no credential: {reason}")
        return token

    @abstractmethod
    async def headers(
        self, token: Any, method: str, url: URL, headers: Mapping[str, str], body: bytes | Buffers
    ) -> Mapping[str, str]: ...

    async def replace(self, token: Any, failure: Failure, date: str) -> bool:
        """Renews a token that was refused; else the one before it serves to its end."""
        if not self._is_refusal(failure):
            return False
        now, timing = self._loop.time(), self._timing
        is_current = self._current is token
        if is_current and now >= max(self._retry_at, token.issued_at + timing.min_age):
            await self._renewed()
        current, previous = self._valid(self._current), self._valid(self._previous)
        if current is token and previous is not None:
            self._current, self._previous, current = previous, None, previous
            self._schedule(self._loop.time() + timing.retry)
        return current is not None and current is not token

    def start(self) -> None:
        """Obtains the first one, and each later one in time."""
        if self._timer is None and self._refreshing is None:
            self._tick()

    def pause(self) -> None:
        """Ends renewing in time; requests that still run get what they need."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    async def close(self) -> None:
        self.pause()
        if (refreshing := self._refreshing) is not None:
            refreshing.cancel()
            await asyncio.wait({refreshing})

    def _is_refusal(self, failure: Failure) -> bool:
        return failure.status == _UNAUTHORIZED

    def _valid(self, token: Token | None) -> Token | None:
        return token if token is not None and self._loop.time() < token.ends_at else None

    async def _renewed(self) -> None:
        """Waits for the refresh, which there is one of."""
        self._refresh()
        if self._refreshing is not None:
            await asyncio.wait({self._refreshing}, timeout=self._timing.wait)

    def _refresh(self) -> None:
        if self._refreshing is None:
            self._refreshing = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            issued = await self._issue()
            old = self._current
            secrets = issued.secrets + (Issued(old.value).secrets if old is not None else ())
            await self._listener.issued(secrets)
        except Exception as error:  # of any library: the next one is tried later
            self._note_failure(failure_reason(error))
        else:
            self._accept(issued)
        finally:
            self._refreshing = None

    def _accept(self, issued: Issued) -> None:
        now, timing = self._loop.time(), self._timing
        left = self._ttl if issued.expires_in is None else issued.expires_in
        if issued.expires_at is not None:
            left = issued.expires_at - self._clock()
        token = Token(issued.value, now, now + left)
        current, has_failed = self._current, self._failures > 0
        if is_same := current is not None and current.value == token.value:
            current.issued_at, current.ends_at = now, token.ends_at  # its source has kept it
        else:
            self._previous, self._current = current, token
        self._failure, self._failures, self._retry_at = "", 0, -inf
        self.refreshes["ok"] += 1
        self._schedule(now + max(left - min(timing.lead, left / 5), timing.retry))
        if has_failed or not is_same:
            self._listener.renewed()

    def _note_failure(self, reason: str) -> None:
        now, current = self._loop.time(), self._valid(self._current)
        delay = min(self._timing.retry * 2 ** min(self._failures, 10), self._timing.max_retry)
        self._failure, self._failures, self._retry_at = reason, self._failures + 1, now + delay
        self.refreshes["failed"] += 1
        self._schedule(self._retry_at if current is None else min(self._retry_at, current.ends_at))
        self._listener.failed(reason, 0.0 if current is None else current.ends_at - now)

    def _schedule(self, at: float) -> None:
        if self._timer is not None:  # else it is closed, or was not started
            self._timer.cancel()
            self._timer = self._loop.call_at(at, self._tick)

    def _tick(self) -> None:
        if self._refreshing is not None and self._valid(self._current) is None:
            self._listener.failed("its source does not answer", 0.0)
        self._timer = self._loop.call_later(self._timing.max_retry, self._tick)
        self._refresh()


class BearerCredential(ExpiringCredential):
    """A token in a header; `header` makes it."""

    def __init__(self, header: Callable[[str], dict[str, str]], *args: Any) -> None:
        super().__init__(*args)
        self._header = header

    async def headers(
        self, token: Any, method: str, url: URL, headers: Mapping[str, str], body: bytes | Buffers
    ) -> Mapping[str, str]:
        return self._header(token.value)


class AwsCredential(ExpiringCredential):
    """Keys that sign each request."""

    def __init__(self, signer: Signer, *args: Any) -> None:
        super().__init__(*args)
        self._signer = signer

    async def headers(
        self, token: Any, method: str, url: URL, headers: Mapping[str, str], body: bytes | Buffers
    ) -> Mapping[str, str]:
        body_hash = await self._signer.hash_body(body)
        return self._signer.sign(token.value, method, url, headers, body_hash)

    async def replace(self, token: Any, failure: Failure, date: str) -> bool:
        is_of_clock = self._is_refusal(failure) and self._signer.learn_clock(date)
        return is_of_clock or await super().replace(token, failure, date)

    def _is_refusal(self, failure: Failure) -> bool:
        text = f"{failure.type} {failure.code} {failure.message}"
        return failure.status == _UNAUTHORIZED or (
            failure.status == _FORBIDDEN and _AWS_KEYS.search(text, 0, 2000) is not None
        )
