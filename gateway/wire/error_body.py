"""How an error looks on the wire: the two envelopes, and the one for paths of neither format.

It must not decide which error it is: the table in `gateway.errors` does.
"""

from __future__ import annotations

import orjson

from gateway.errors import GatewayError
from gateway.wire.json_fields import Payload


def chat_error_fields(error: GatewayError) -> Payload:
    """`error` of chat and responses, which is also what their streams carry."""
    return {
        "message": error.message,
        "type": error.type,
        "param": error.param,
        "code": error.code,
    }


def chat_error_body(error: GatewayError) -> bytes:
    """The body of an HTTP error on chat and responses."""
    return orjson.dumps({"error": chat_error_fields(error)})


def messages_error_body(error: GatewayError, request_id: str | None) -> bytes:
    """The body of an HTTP error on messages, which is also its in-stream form."""
    said: Payload = {"type": error.messages_type, "message": error.messages_text}
    if error.details is not None:
        said["details"] = error.details
    body: Payload = {"type": "error", "error": said}
    if request_id is not None:
        body["request_id"] = request_id
    return orjson.dumps(body)


def combined_error_body(error: GatewayError, request_id: str) -> bytes:
    """A body that the client libraries of every format parse, for paths that belong to none."""
    return orjson.dumps(
        {
            "type": "error",
            "error": chat_error_fields(error) | {"type": error.messages_type},
            "request_id": request_id,
        }
    )
