"""One POST to a webhook: its message, formats and signature.

The receiver is not trusted: its address is checked at the socket, redirects are not followed, its
answer is not read, and everything is bounded by one timeout.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
from collections.abc import Callable
from typing import Any, Final

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from aiohttp.abc import AbstractResolver
from yarl import URL

from gateway import __version__
from gateway.alerts.incidents import Incident, Status
from gateway.config.monitoring import Webhook
from gateway.config.schema import Config
from gateway.core.text import escape_unprintable
from gateway.quota.budgets import format_utc
from gateway.upstream.public_addresses import (
    AddressRefused,
    NameLookup,
    SocketFactory,
    guarded_factory,
)

SIGNATURE_HEADER: Final = "x-gateway-signature"

Message = dict[str, Any]
"""JSON: `id`, `incident`, `alert`, `status`, `severity`, `subject`, `summary`, `details`, `since`,
`at`, `gateway`, `version`. `id` is the same in each repetition of a message."""


def build_message(incident: Incident, status: Status, config: Config, at: int) -> Message:
    """`at` is in Unix microseconds."""
    return {
        "id": f"{incident.id}-{status}",
        "incident": incident.id,
        "alert": incident.kind,
        "status": status,
        "severity": incident.severity,
        "subject": escape_unprintable(incident.subject),
        "summary": escape_unprintable(incident.summary),
        "details": incident.details,
        "since": format_utc(incident.since),
        "at": format_utc(at),
        "gateway": config.server.public_url or socket.gethostname(),
        "version": __version__,
    }


def encode(message: Message, format: str) -> bytes:
    """The body of the request, in one of the formats of the configuration."""
    return orjson.dumps(message if format == "json" else {"text": _as_text(message)})


def sign(secret: str, body: bytes, at: int) -> str:
    """The value of `SIGNATURE_HEADER` for a message that is sent at `at` (Unix seconds)."""
    digest = hmac.new(secret.encode(), b"%d.%b" % (at, body), "sha256").hexdigest()
    return f"t={at},v1={digest}"


def _as_text(message: Message) -> str:
    """One line; names of keys and clients cannot add links or mentions."""
    text = f"[{message['status']}] {message['alert']} ({message['severity']}): {message['summary']}"
    text += f" Gateway: {message['gateway']}"
    for character, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", "@\u200b")):
        text = text.replace(character, escaped)
    return text


MAX_WAIT: Final = 60.0
"""Seconds of a `retry-after` that are respected."""

_SUCCESS: Final = range(200, 300)
_REDIRECT: Final = range(300, 400)
_FINAL: Final = frozenset({400, 405, 410, 411, 413, 414, 415, 422})
"""The receiver has understood the message and does not take it; others may be a matter of time."""


class DeliveryFailed(Exception):
    """The text is for operators. `is_final`: another try would fail too. `wait`: the receiver asks
    for so many seconds."""

    def __init__(self, text: str, *, is_final: bool = False, wait: float | None = None) -> None:
        super().__init__(text)
        self.is_final = is_final
        self.wait = wait


class Delivery:
    """`now` returns Unix microseconds, `resolver` finds addresses of names, `make_socket` makes
    sockets for them. For one event loop."""

    def __init__(
        self,
        now: Callable[[], int],
        resolver: AbstractResolver | None = None,
        make_socket: SocketFactory | None = None,
    ) -> None:
        self._now = now
        self._resolver = resolver or NameLookup()
        self._make_socket = make_socket or (lambda info: socket.socket(*info[:3]))

    async def send(self, webhook: Webhook, message: Message) -> int:
        """The status of the answer, which is a success. Raises DeliveryFailed."""
        try:
            async with asyncio.timeout(webhook.timeout):
                return await self._post(webhook, encode(message, webhook.format))
        except TimeoutError:
            raise DeliveryFailed(f"no answer within {webhook.timeout:g} s") from None
        except (ClientError, OSError, ValueError) as error:
            raise DeliveryFailed(_describe(error)) from None

    async def _post(self, webhook: Webhook, body: bytes) -> int:
        at = self._now() // 1_000_000
        url = URL(webhook.url.get_secret_value(), encoded=True)
        allowed = webhook.allowed_networks
        connector = TCPConnector(
            resolver=self._resolver,
            socket_factory=guarded_factory(
                allowed, self._make_socket, public=url.scheme == "https"
            ),
            use_dns_cache=False,
            force_close=True,
        )
        async with (
            ClientSession(
                connector=connector,
                cookie_jar=DummyCookieJar(),
                auto_decompress=False,
                timeout=ClientTimeout(total=None),
                trust_env=False,
            ) as session,
            session.post(
                url, data=body, headers=_headers(webhook, body, at), allow_redirects=False
            ) as response,
        ):
            status, wait = response.status, response.headers.get("retry-after", "")
            response.close()
        if status in _SUCCESS:
            return status
        note = ": redirects are not followed" if status in _REDIRECT else ""
        raise DeliveryFailed(
            f"status {status}{note}",
            is_final=status in _FINAL,
            wait=min(float(wait), MAX_WAIT) if wait.isascii() and wait.isdigit() else None,
        )


def _headers(webhook: Webhook, body: bytes, at: int) -> dict[str, str]:
    headers = {
        "content-type": "application/json",
        "accept-encoding": "identity",
        "user-agent": f"model-gateway/{__version__}",
    }
    headers |= {name: value.get_secret_value() for name, value in webhook.headers.items()}
    if webhook.secret is not None:
        secret = webhook.secret.get_secret_value()
        headers[SIGNATURE_HEADER] = sign(secret, body, at)
    return headers


def _describe(error: Exception) -> str:
    """Describes an error without the address, which can be a secret."""
    cause = error.__cause__ or error  # the library wraps errors of connecting
    while isinstance(cause, OSError) and isinstance(cause.__cause__, AddressRefused):
        cause = cause.__cause__
    if isinstance(cause, AddressRefused):
        return f"{cause}: if it is meant, state its network in allowed_networks"
    text = getattr(cause, "strerror", None)
    return f"{type(cause).__name__}: {text}" if text else type(cause).__name__
