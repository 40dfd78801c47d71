"""Messages to webhooks: their fields, their formats, their signature."""

from __future__ import annotations

import hmac
import socket
from typing import Any, Final

import orjson

from gateway import __version__
from gateway.alerts.incidents import Incident, Status
from gateway.config.schema import Config
from gateway.core.text import escape_unprintable
from gateway.quota.budgets import format_utc

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
