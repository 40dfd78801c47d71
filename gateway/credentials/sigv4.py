"""Signs requests to AWS (Signature Version 4)."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from yarl import URL

from gateway.core.buffers import Buffers
from gateway.credentials.sources import AwsKeys
from gateway.upstream.turns import BulkTurns

PIECE: Final = 256 * 1024
"""Bytes that are hashed at once: other tasks run before the next ones are."""

MAX_SKEW: Final = 240.0
"""Seconds by which clocks can differ; AWS refuses more than 300."""

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_SIGNED: Final = ("content-type", "x-amz-", "anthropic-")
"""What begins the names of headers that a service reads; proxies may change others."""

log = logging.getLogger(__name__)


class Signer:
    """Signs for one service in one region. `clock` returns Unix seconds; `offset` corrects it."""

    def __init__(self, service: str, region: str, clock: Callable[[], float]) -> None:
        self._service, self._region, self._clock = service, region, clock
        self._key: tuple[str, str, bytes] = ("", "", b"")
        self.offset = 0.0

    @cached_property
    def _turns(self) -> BulkTurns:
        return BulkTurns()

    async def hash_body(self, body: bytes | Buffers) -> str:
        """Returns the hash of a body, which is not copied."""
        if isinstance(body, bytes) and len(body) <= PIECE:
            return sha256(body).hexdigest()
        digest, buffers = sha256(), Buffers([memoryview(body)]) if isinstance(body, bytes) else body
        for piece in buffers.pieces(PIECE):
            digest.update(piece)
            await self._turns.take()
        return digest.hexdigest()

    def sign(
        self, keys: AwsKeys, method: str, url: URL, headers: Mapping[str, str], body_hash: str
    ) -> dict[str, str]:
        """Returns the headers that a request needs besides `headers`, whose names are in lower
        case."""
        moment = datetime.fromtimestamp(self._clock() + self.offset, UTC)
        date = moment.strftime("%Y%m%dT%H%M%SZ")
        added = {"x-amz-date": date}
        if keys.session_token is not None:
            added["x-amz-security-token"] = keys.session_token
        signed = {name: value for name, value in headers.items() if name.startswith(_SIGNED)}
        signed |= added | {"host": url.host_port_subcomponent or ""}
        names = sorted(signed)
        listed = ";".join(names)
        request = [
            *(method, quote(url.raw_path, safe="/~"), _canonical_query(url.raw_query_string)),
            *(f"{name}:{' '.join(signed[name].split())}" for name in names),
            *("", listed, body_hash),
        ]
        scope = f"{date[:8]}/{self._region}/{self._service}/aws4_request"
        hashed = sha256("\n".join(request).encode("utf-8", "surrogateescape")).hexdigest()
        text = f"{_ALGORITHM}\n{date}\n{scope}\n{hashed}"
        signature = hmac.digest(self._signing_key(keys.secret_key, date[:8]), text.encode(), sha256)
        credential = f"{_ALGORITHM} Credential={keys.access_key}/{scope}"
        value = f"{credential}, SignedHeaders={listed}, Signature={signature.hex()}"
        return {**added, "authorization": value}

    def learn_clock(self, date: str) -> bool:
        """Corrects the clock by the date of a response that refuses a signature. Returns whether
        the clock was why."""
        try:
            there = parsedate_to_datetime(date).timestamp()
        except ValueError:
            return False
        offset = there - self._clock()
        if abs(offset - self.offset) <= MAX_SKEW:
            return False
        self.offset = offset
        text = "this machine's clock is %d s %s that of AWS: requests are signed with the latter"
        log.warning(text, abs(offset), "behind" if offset > 0 else "ahead of")
        return True

    def _signing_key(self, secret: str, day: str) -> bytes:
        """Derives the key of a day, which is kept."""
        if self._key[:2] != (secret, day):
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                key = hmac.digest(key, part.encode(), sha256)
            self._key = secret, day, key
        return self._key[2]


def _canonical_query(query: str) -> str:
    pairs = (part.partition("=") for part in query.split("&") if part)
    return "&".join(sorted(f"{name}={value}" for name, _, value in pairs))
