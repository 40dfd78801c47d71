"""A request's body: read within its limits and parsed once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import orjson
from aiohttp import StreamReader, hdrs, web

from gateway.errors import (
    InvalidJson,
    InvalidRequest,
    RequestTimeout,
    RequestTooLarge,
    ServiceUnavailable,
    UnsupportedMediaType,
)
from gateway.server.exchange import EXCHANGE

READ_TIMEOUT: Final = 30.0
"""Seconds to read a small body; every 64 KiB add one more, up to two minutes."""

MAX_BRACKETS: Final = 2_000_000
"""Braces and brackets of a body: more would stall the parser."""

MAX_IN_FLIGHT: Final = 256 * 1024 * 1024
"""Bytes of all bodies of running requests: each takes about four times its size in memory."""

_LARGE_BODY: Final = 1024 * 1024
_JSON: Final = "application/json"


async def read_json(request: web.Request) -> tuple[bytes, dict[str, Any]]:
    """The body and the JSON object in it.

    Raises `RequestTooLarge`, `RequestTimeout`, `UnsupportedMediaType`, `InvalidJson`, or
    `ServiceUnavailable` where running requests already have `MAX_IN_FLIGHT`.
    """
    exchange = request[EXCHANGE]
    content, max_body = request.content, exchange.snapshot.config.server.max_body
    size = request.content_length or 0
    _check_head(request.headers, size, max_body)
    if exchange.runtime.bytes_in_flight + size > MAX_IN_FLIGHT:
        raise ServiceUnavailable(detail="the bodies in flight are too large together")
    if content.is_eof() and content.exception() is None:  # a small body arrived with its head
        raw = content.read_nowait(-1)
        if len(raw) > max_body:
            raise RequestTooLarge
    else:
        exchange.set_body_size(size)
        try:
            async with asyncio.timeout(min(120.0, READ_TIMEOUT + size / 65536)):
                raw = await _read_all(content, max_body)
        except TimeoutError:
            raise RequestTimeout from None
    exchange.set_body_size(len(raw))
    return raw, parse_object(raw)


async def _read_all(content: StreamReader, max_body: int) -> bytes:
    """Not with the request's own `read`, which keeps the body as long as the request exists."""
    chunks, size = [], 0
    async for chunk in content.iter_any():
        size += len(chunk)
        if size > max_body:
            raise RequestTooLarge
        chunks.append(chunk)
    return b"".join(chunks)


def parse_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in `raw`; of a duplicate key, the last value counts."""
    if len(raw) > _LARGE_BODY and raw.count(b"{") + raw.count(b"[") > MAX_BRACKETS:
        raise InvalidJson("The request body has too many elements")
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        position = f"line {error.lineno} column {error.colno}"
        message = f"The request body is not valid JSON: {error.msg} ({position})"
        raise InvalidJson(message) from None
    if not isinstance(body, dict):
        raise InvalidRequest("body: Input should be a JSON object", param="body")
    return body


def write_object(body: dict[str, Any]) -> bytes:
    """The JSON text of a parsed body. Raises `InvalidRequest`: parsing allows deeper nesting than
    writing."""
    try:
        return orjson.dumps(body)
    except TypeError:
        raise InvalidRequest("body: Input is nested too deeply", param="body") from None


def _check_head(headers: Mapping[str, str], size: int, max_body: int) -> None:
    if size > max_body:
        raise RequestTooLarge
    if headers.get(hdrs.CONTENT_ENCODING, "identity") != "identity":
        raise UnsupportedMediaType
    kind = headers.get(hdrs.CONTENT_TYPE)
    if kind is not None and kind != _JSON and kind.partition(";")[0].strip().lower() != _JSON:
        raise UnsupportedMediaType
