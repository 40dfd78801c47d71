"""Errors as chat clients read them. It must not decide which error it is."""

from __future__ import annotations

from gateway.errors import GatewayError
from gateway.wire.envelope import chat_error_body
from gateway.wire.sse import write_frame


def error_frame(error: GatewayError) -> bytes:
    """The error as the last frame of a stream; no `[DONE]` follows it."""
    return write_frame(b"", chat_error_body(error))
