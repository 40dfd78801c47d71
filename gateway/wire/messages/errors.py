"""Errors as messages clients read them. It must not decide which error it is."""

from __future__ import annotations

from gateway.errors import GatewayError
from gateway.wire.envelope import messages_error_body
from gateway.wire.sse import write_frame


def render_error(error: GatewayError, request_id: str) -> bytes:
    """The body of an HTTP error."""
    return messages_error_body(error, request_id)


def error_frame(error: GatewayError) -> bytes:
    """The error as the last frame of a stream."""
    return write_frame(b"error", messages_error_body(error, None))
