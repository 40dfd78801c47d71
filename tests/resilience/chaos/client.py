"""The requests of these tests, and raw clients that send them.

Independent of what an upstream answers.
"""

from __future__ import annotations

from typing import Any

from gateway.core.formats import Format
from tests.support.gateway import PATHS, request_body
from tests.support.raw_client import RawClient, connect, request


def request_fields(format: Format, name: str, **fields: Any) -> dict[str, Any]:
    """A request body whose prompt says `name`."""
    if format is Format.RESPONSES:
        return request_body(format, input=name, **fields)
    return request_body(format, messages=[{"role": "user", "content": name}], **fields)


def headers(key: str, name: str) -> dict[str, str]:
    """`name` becomes the client's own request id, by which its row is found."""
    return {
        "authorization": f"Bearer {key}",
        "content-type": "application/json",
        "anthropic-version": "2023-06-01",
        "x-request-id": name,
    }


def encode_request(key: str, format: Format, name: str, **fields: Any) -> bytes:
    return request(
        "http://gateway", PATHS[format], request_fields(format, name, **fields), headers(key, name)
    )


async def send_request(
    address: str, key: str, format: Format, name: str, *, room: int = 0, **fields: Any
) -> RawClient:
    """Sends the request and reads nothing. `room` as in `connect`."""
    client = await connect(address, room=room)
    await client.send(encode_request(key, format, name, **fields))
    return client
