"""Error bodies for clients: of chat and responses, of messages, and one for paths of no format."""

from __future__ import annotations

import orjson

from gateway.errors import GatewayError
from gateway.wire.json.fields import Payload


def chat_error_fields(error: GatewayError) -> Payload:
    """`error` of chat and responses, in HTTP bodies and in streams."""
    return {
        "message": error.message,
        "type": error.type,
        "param": error.param,
        "code": error.code,
    }


def chat_error_body(error: GatewayError, request_id: str | None = None) -> bytes:
    """The HTTP body of chat and responses, where the request id is a header only."""
    del request_id
    return orjson.dumps({"error": chat_error_fields(error)})


def messages_error_body(error: GatewayError, request_id: str | None) -> bytes:
    """The HTTP body of messages, and its in-stream form."""
    fields: Payload = {"type": error.messages_type, "message": error.messages_text}
    if error.details is not None:
        fields["details"] = error.details
    body: Payload = {"type": "error", "error": fields}
    if request_id is not None:
        body["request_id"] = request_id
    return orjson.dumps(body)


def combined_error_body(error: GatewayError, request_id: str) -> bytes:
    """A body that the client libraries of every format can parse."""
    fields = chat_error_fields(error) | {"type": error.messages_type}
    return orjson.dumps({"type": "error", "error": fields, "request_id": request_id})
