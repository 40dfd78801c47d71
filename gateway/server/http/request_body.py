"""A request's body: read within its limits and parsed once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from mmap import mmap
from secrets import token_hex
from typing import Any, Final

import orjson
from aiohttp import StreamReader, hdrs, web

from gateway.errors import (
    InvalidJson,
    InvalidRequest,
    RequestTimeout,
    RequestTooLarge,
    ServiceUnavailable,
    TooManyRequests,
    UnsupportedMediaType,
)
from gateway.server.http.body_buffer import BodyBuffer
from gateway.server.http.content_encoding import ENCODINGS, decompress
from gateway.server.record.deadlines import AbortableTimeout
from gateway.server.record.exchange import EXCHANGE, Exchange
from gateway.wire.json.limits import (
    JsonTooComplex,
    Raw,
    check_complexity,
    count_unquoted_values,
    count_values,
)
from gateway.wire.json.long_texts import LongTexts
from gateway.wire.json.numbers import parse_json
from gateway.wire.json.surrogates import LONE_SURROGATE, replace_lone_surrogates
from gateway.wire.prompt.recent_bodies import Parsed, RecentBodies

UPLOAD_WINDOW: Final = 15.0
"""Seconds in which as much of a body has to arrive as `server.min_upload_rate` says, or its end."""

BYTES_PER_VALUE: Final = 256
"""Memory that a value of a body takes besides its own bytes."""

_SMALL_BODY: Final = 16 * 1024
_LARGE_BODY: Final = 1024 * 1024
_FEW_VALUES: Final = 4000
"""Their memory is not counted."""
_MANY_VALUES: Final = 8000
"""A turn of a body with so many takes some 10 ms at most, which the event loop can spare; a coding
agent sends 2,000 to 6,000."""
_JSON: Final = "application/json"
_IDENTITY: Final = "identity"


async def read_json(request: web.Request) -> tuple[bytes, dict[str, Any]]:
    """The body and the JSON object in it. Call it after the authorization.

    A body that has not arrived yet is read only within the limits of the request's key: their
    reservation is provisional, as tokens and cost are unknown (see `Admission.acquire`).

    Raises `RequestTooLarge`, `RequestTimeout`, `UnsupportedMediaType`, `InvalidJson`,
    `InvalidRequest`, what `Admission.acquire` raises, or as `BodyPool.check`.
    """
    exchange = request[EXCHANGE]
    raw: Raw
    content, max_body = request.content, exchange.snapshot.config.server.max_body
    size = request.content_length or 0
    encoding = _check_head(request.headers, size, max_body)
    if content.is_eof() and content.exception() is None:  # a small body arrived with its head
        raw = content.read_nowait(-1)
        if len(raw) > max_body:
            raise RequestTooLarge
        exchange.bytes_in = len(raw)
        if len(raw) >= _SMALL_BODY or encoding is not None:  # the others cannot be too many
            exchange.book_body(len(raw))
    else:
        exchange.check_body(size)
        _acquire_provisionally(exchange)
        raw = await _read_all(content, exchange, size, max_body)
    if encoding is not None:
        buffer = partial(BodyBuffer, run=exchange.runtime.worker.run_later)
        book, run = exchange.book_body, exchange.run_in_thread
        raw = await decompress(raw, encoding, max_body, book, run, buffer)
        exchange.release_body(exchange.bytes_in)
    if len(raw) < _SMALL_BODY:
        body = bytes(raw)
        parsed = parse_object(body)
    else:
        parsing = _parse_in_turns(raw, exchange)
        del raw  # two copies of it are enough
        body, parsed = await parsing
    if parsed[0] is not body:
        exchange.dropped = frozenset({LONE_SURROGATE})
    return parsed


async def read_whole(request: web.Request, content_type: str) -> Raw:
    """The body of another content type, as it is. Call it after the authorization. Raises like
    `read_json`."""
    exchange = request[EXCHANGE]
    size, max_body = request.content_length or 0, exchange.snapshot.config.server.max_body
    if _check_head(request.headers, size, max_body, content_type) is not None:
        raise UnsupportedMediaType
    exchange.check_body(size)
    _acquire_provisionally(exchange)
    return await _read_all(request.content, exchange, size, max_body)


async def adopt(exchange: Exchange, body: dict[str, Any], size: int) -> bytes:
    """The JSON text of a body that the gateway has put together of `size` bytes. It counts as large
    as one that arrived. Raises `RequestTooLarge` or `InvalidRequest`, or as `BodyPool.check`."""
    run = exchange.run_in_thread
    raw = await run(write_object, body) if size > _SMALL_BODY else write_object(body)
    if len(raw) > exchange.snapshot.config.server.max_body:
        raise RequestTooLarge
    exchange.book_body(len(raw))
    if len(raw) >= _SMALL_BODY:
        runtime, values = exchange.runtime, _count_moderate(raw)
        exchange.turns = runtime.worker if values is None else runtime.loop_turns
        _book_values(exchange, await run(_count_values, raw) if values is None else values)
    return raw


async def _parse_in_turns(
    raw: Raw, exchange: Exchange
) -> tuple[bytes, tuple[bytes, dict[str, Any]]]:
    """The body, with placeholders for its long texts, and the same as `parse_object`."""
    exchange.turns = exchange.runtime.loop_turns
    recent, key = exchange.runtime.recent_bodies, exchange.key
    if (moderate := await exchange.run_in_turn(_parse_moderate, raw, recent, key)) is not None:
        body, values, read, continued = moderate
        _book_values(exchange, values)
        if read[0] is body:  # else it had lone surrogates
            recent.add(key, *read, values, continued)
        return body, read
    exchange.turns = exchange.runtime.worker
    run = exchange.run_in_thread
    body, texts, values = await run(_examine, raw, token_hex(16))
    _book_values(exchange, values)
    if texts is not None:
        if (parsed := await run(_parse_short, texts)) is not None:
            exchange.long_texts = texts
            return body, parsed
        body = await run(bytes, raw)
    del raw
    return body, await run(parse_object, body)


def _parse_moderate(
    raw: Raw, recent: RecentBodies, key: str
) -> tuple[bytes, int, tuple[bytes, dict[str, Any]], Parsed | None] | None:
    """The body, the number of its values, the same as `parse_object`, and how it continues one of
    the `recent` ones; None where the event loop cannot spare the time."""
    if isinstance(raw, mmap) or len(raw) > _LARGE_BODY:
        return None
    body = bytes(raw)
    parsed = recent.parse(key, body)
    if parsed is not None and parsed.values <= _MANY_VALUES:
        return body, parsed.values, (body, parsed.body), parsed
    values = _count_moderate(body)
    return None if values is None else (body, values, parse_object(body), None)


def _parse_short(texts: LongTexts) -> tuple[bytes, dict[str, Any]] | None:
    """Parses like `parse_object`, with the long texts attached; None if the whole body has to be
    parsed: long texts are in other places than files are, or the body is no JSON, whose error tells
    the place."""
    try:
        parsed = parse_object(texts.short)
    except InvalidJson:
        return None
    return parsed if texts.attach(parsed[1]) else None


def _book_values(exchange: Exchange, values: int) -> None:
    if values > _FEW_VALUES:
        exchange.book_body(values * BYTES_PER_VALUE)


def _count_moderate(raw: Raw) -> int | None:
    """The number of values; None where they are more than in requests of coding agents."""
    if isinstance(raw, mmap) or len(raw) > _LARGE_BODY:
        return None
    values = count_values(raw)
    if values > _MANY_VALUES:
        values = count_unquoted_values(raw)
    return values if values <= _MANY_VALUES else None


def _examine(raw: Raw, token: str) -> tuple[bytes, LongTexts | None, int]:
    """The body, its long texts, if it has any, and the number of its values. Raises
    `InvalidRequest` where there are too many."""
    texts = LongTexts(raw, token)
    if texts:
        return texts.short, texts, _count_values(texts.short)
    values = _count_values(raw)
    return bytes(raw), None, values


def _count_values(raw: Raw) -> int:
    """Raises `InvalidRequest` where there are too many."""
    try:
        return check_complexity(raw)
    except JsonTooComplex as error:
        raise InvalidRequest(f"body: {error}", param="body") from None


def _acquire_provisionally(exchange: Exchange) -> None:
    """Reserves what is known before the body is read. If requests may wait in the queue, a refusal
    is left to it, where the request waits with its body in memory: streams get pings meanwhile."""
    meter, permit = exchange.meter, exchange.meter.permit
    if permit is None:
        raise RuntimeError("a body is read after the authorization")
    try:
        meter.reservation = exchange.runtime.admission.acquire_provisionally(
            meter.entry_demand(permit)
        )
    except TooManyRequests:
        if exchange.snapshot.config.limits.max_wait is None:
            raise


async def _read_all(content: StreamReader, exchange: Exchange, size: int, max_body: int) -> Raw:
    """Reads the body without the request's own `read`, which keeps the body as long as the request
    exists."""
    runtime, loop = exchange.runtime, asyncio.get_running_loop()
    per_window = exchange.snapshot.config.server.min_upload_rate * UPLOAD_WINDOW
    body, large, due, started = bytearray(), None, per_window, loop.time()
    if size > _LARGE_BODY or not size:
        large = BodyBuffer(size or max_body, runtime.worker.run_later)
    try:
        with AbortableTimeout(runtime, loop.time() + UPLOAD_WINDOW) as deadline:
            while chunk := await content.readany():
                exchange.bytes_in += len(chunk)
                if exchange.bytes_in > max_body:
                    raise RequestTooLarge
                exchange.book_body(len(chunk))
                if large is None:
                    body += chunk
                else:
                    large.add(chunk)
                    await runtime.bulk_turns.take()
                if exchange.bytes_in >= due:
                    due = exchange.bytes_in + per_window
                    deadline.when = loop.time() + UPLOAD_WINDOW
    except TimeoutError:
        raise (ServiceUnavailable if runtime.aborting else RequestTimeout) from None
    finally:
        exchange.upload_time = loop.time() - started
    return body if large is None else large.finish()


def parse_object(raw: bytes) -> tuple[bytes, dict[str, Any]]:
    """The JSON object in `raw`, and `raw` without lone surrogates; of a duplicate key, the last
    value counts."""
    try:
        body = parse_json(raw)
    except orjson.JSONDecodeError as error:
        if (replaced := replace_lone_surrogates(raw)) is not raw:
            return parse_object(replaced)
        position = f"line {error.lineno} column {error.colno}"
        message = f"The request body is not valid JSON: {error.msg} ({position})"
        raise InvalidJson(message) from None
    if not isinstance(body, dict):
        raise InvalidRequest("body: Input should be a JSON object", param="body")
    return raw, body


def write_object(body: dict[str, Any]) -> bytes:
    """The JSON text of a parsed body. Raises `InvalidRequest`: parsing allows deeper nesting than
    writing."""
    try:
        return orjson.dumps(body)
    except TypeError:
        raise InvalidRequest("body: Input is nested too deeply", param="body") from None


def _check_head(
    headers: Mapping[str, str], size: int, max_body: int, content_type: str = _JSON
) -> str | None:
    """The content encoding, if there is one."""
    if size > max_body:
        raise RequestTooLarge
    encoding = headers.get(hdrs.CONTENT_ENCODING, _IDENTITY).strip().lower()
    if encoding != _IDENTITY and encoding not in ENCODINGS:
        raise UnsupportedMediaType
    kind = headers.get(hdrs.CONTENT_TYPE, content_type)
    if kind != content_type and kind.partition(";")[0].strip().lower() != content_type:
        raise UnsupportedMediaType
    return None if encoding == _IDENTITY else encoding
