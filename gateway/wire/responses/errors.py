"""Errors as responses clients read them. It must not decide which error it is."""

from __future__ import annotations

import orjson

from gateway.errors import GatewayError
from gateway.wire.fields import Payload
from gateway.wire.sse import write_frame


def failed_frame(error: GatewayError, response: Payload, sequence: int) -> bytes:
    """The error as the terminal event of a stream whose reply has begun as `response`."""
    failed = response | {
        "status": "failed",
        "error": {"code": _error_code(error), "message": error.message},
    }
    event = {"type": "response.failed", "sequence_number": sequence, "response": failed}
    return write_frame(b"response.failed", orjson.dumps(event))


def error_frame(error: GatewayError, sequence: int) -> bytes:
    """The error as the only event of a stream."""
    event = {
        "type": "error",
        "code": _error_code(error),
        "message": error.message,
        "param": error.param,
        "sequence_number": sequence,
    }
    return write_frame(b"error", orjson.dumps(event))


def _error_code(error: GatewayError) -> str:
    """Clients decide by the code whether to come back, so there is always one."""
    return error.code or error.type
