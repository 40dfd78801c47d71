"""The memory of request bodies: a limit on all of them together, and a share of it per client."""

from __future__ import annotations

from typing import Final

from gateway.errors import ServiceUnavailable, TooManyRequests

SHARE: Final = 0.5
"""The part of the pool that one key, or one address, can have."""

_RETRY: Final = 1.0
"""`retry-after`, in seconds: the end of running requests is unknown."""


class BodyPool:
    """Bytes of the bodies of running requests, as far as they have arrived; `total` is their sum.

    A client is the id of a key, or an address."""

    __slots__ = ("_by_client", "total")

    def __init__(self) -> None:
        self.total = 0
        self._by_client: dict[str, int] = {}

    def check(self, key: str, address: str, size: int, limit: int) -> None:
        """Raises `ServiceUnavailable` if `size` more bytes exceed the limit, `TooManyRequests`
        where they exceed the client's share of it."""
        if self.total + size > limit:
            raise ServiceUnavailable(detail="the bodies in flight are too large together")
        share = int(limit * SHARE)
        for client, kind in ((key, "this key"), (address, "this address")):
            held = self._by_client.get(client, 0)
            if held + size > share:
                reason = f"{kind}: request bodies in flight have {held:,} of {share:,} bytes"
                raise TooManyRequests(reason=reason, retry_after=_RETRY)

    def add(self, key: str, address: str, size: int) -> None:
        """`size` is negative when a request has ended."""
        self.total += size
        by_client = self._by_client
        for client in (key, address):
            if held := by_client.get(client, 0) + size:
                by_client[client] = held
            else:
                by_client.pop(client, None)
