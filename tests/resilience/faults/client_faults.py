"""Every way in which a client may misbehave, and what comes of it: the rows of docs/faults.md.

`test_client_faults` shows each of them in every format. Independent of how.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from gateway.store.records import ExchangeState
from tests.resilience.faults.outcomes import Bill, ClientError, RequestMode, refused
from tests.support.raw_client import Leave

NEVER: Final = "never called"
CALLED: Final = "called as ever"
LEFT: Final = "hears of it within 250 ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFault:
    """`error` is None where the client gets a reply, or nothing. `state` and `status` are those of
    the row, None where there is none.

    What is wrong: `leave` while the upstream does what `plan` says; or the `body` made of a sound
    one, sent with these `headers` over the usual ones (None: without it); or the bytes of the whole
    request that `raw` makes of sound ones.
    """

    what: str
    mode: RequestMode = RequestMode.BOTH
    error: ClientError | None = None
    state: ExchangeState | None = None
    status: int | None = None
    upstream: str = NEVER
    bill: Bill = Bill.NOTHING
    plan: str = "ok"
    leave: Leave | None = None
    body: Callable[[bytes], bytes] = field(default=lambda body: body)
    headers: Mapping[str, str | None] = field(default_factory=dict)
    raw: Callable[[bytes], bytes] = field(default=lambda request: request)


_MOMENTS: Final = (
    ("before the upstream has answered", "stall:head", RequestMode.BOTH, 499, Bill.PROMPT),
    ("after the upstream's response head", "stall:start", RequestMode.BOTH, 499, Bill.PROMPT),
    ("in the middle of a reply", "stall:text", RequestMode.STREAM, 200, Bill.ESTIMATED),
    ("during a complete reply", "stall:text", RequestMode.WHOLE, 499, Bill.PROMPT),
)
_WAYS: Final = {
    Leave.CLOSE: "disconnects",
    Leave.RESET: "disconnects with a reset",
    Leave.HALF_CLOSE: "closes its half of the connection",
}
LEAVING: Final = [
    ClientFault(
        what=f"{way} {moment}",
        mode=mode,
        state=ExchangeState.CLIENT_GONE,
        status=status,
        upstream=LEFT,
        bill=bill,
        plan=plan,
        leave=how,
    )
    for (moment, plan, mode, status, bill), (how, way) in product(_MOMENTS, _WAYS.items())
]

SLOW_READER: Final = ClientFault(
    what="stops reading a stream",
    mode=RequestMode.STREAM,
    state=ExchangeState.CLIENT_SLOW,
    status=200,
    upstream="is cut off",
    bill=Bill.ESTIMATED,
    plan="tick:0:size=65536",
)
TOO_SLOW: Final = refused(408, "request_timeout", "The request body did not arrive in time")
SLOW_BODY: Final = ClientFault(
    what="sends its body too slowly",
    error=TOO_SLOW,
    state=ExchangeState.REJECTED,
    status=408,
)

AUTHENTICATION: Final = "authentication_error"
NO_JSON: Final = refused(400, "invalid_json", "The request body is not valid JSON")
_NO_OBJECT: Final = refused(400, "invalid_value", "body: Input should be a JSON object")
TOO_LARGE: Final = refused(
    413, "request_too_large", "Request entity too large", native="request_too_large", final=True
)
_NO_TOKEN: Final = refused(
    401, "invalid_api_key", "Invalid token", type=AUTHENTICATION, native=AUTHENTICATION
)
_NO_KEY: Final = _NO_TOKEN.but(message="Auth rejected: no API key provided", final=True)
_WRONG_KEY: Final = _NO_TOKEN.but(final=True)
_MEDIA: Final = refused(
    415,
    "unsupported_media_type",
    "The request body must be application/json, in gzip, deflate, br, zstd or no encoding",
    final=True,
)
_WRONG_FIELD: Final = refused(400, "invalid_value", "")
MALFORMED: Final = refused(400, "malformed_request", "Malformed HTTP request", final=True)

MOST: Final = 4096
"""Bytes that a body may have in these tests."""


def _rejected(what: str, error: ClientError, make: Callable[[bytes], bytes]) -> ClientFault:
    return ClientFault(
        what=what, error=error, state=ExchangeState.REJECTED, status=error.status, body=make
    )


def _headed(what: str, error: ClientError, row: bool, **headers: str | None) -> ClientFault:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ClientFault(
        what=what,
        error=error,
        state=ExchangeState.REJECTED if row else None,
        status=error.status if row else None,
        headers=named,
    )


def _with(value: bytes) -> Callable[[bytes], bytes]:
    """The body with a field of that value."""
    return lambda body: body[:-1] + b',"extra":' + value + b"}"


BODIES: Final = [
    _rejected("sends half a body of JSON", NO_JSON, lambda body: body[:-5]),
    _rejected("sends no body", NO_JSON, lambda body: b""),
    _rejected("sends something after the JSON", NO_JSON, lambda body: body + b"{}"),
    _rejected("sends no UTF-8", NO_JSON, _with(b'"\xff"')),
    _rejected("sends a byte order mark", NO_JSON, lambda body: b"\xef\xbb\xbf" + body),
    _rejected("sends `NaN`", NO_JSON, _with(b"NaN")),
    _rejected("nests 1,200 deep", NO_JSON, _with(b"[" * 1200 + b"]" * 1200)),
    _rejected("sends a list", _NO_OBJECT, lambda body: b"[" + body + b"]"),
    _rejected(
        "asks for 2^70 tokens",
        _WRONG_FIELD,
        lambda body: body[:-1] + b',"max_tokens":%d,"max_output_tokens":%d}' % (2**70, 2**70),
    ),
    _rejected("sends a body above the limit", TOO_LARGE, _with(b'"%b"' % (b"x" * MOST))),
    ClientFault(
        what="compresses its body",
        state=ExchangeState.OK,
        status=200,
        upstream=CALLED,
        bill=Bill.COUNTED,
        headers={"content-encoding": "gzip"},
        body=gzip.compress,
    ),
    ClientFault(
        what="sends a body that decompresses to more than the limit",
        error=TOO_LARGE.but(
            message=f"Request entity too large: decompressed, it has more than {MOST:,} bytes"
        ),
        state=ExchangeState.REJECTED,
        status=413,
        headers={"content-encoding": "gzip"},
        body=lambda _: gzip.compress(b" " * (MOST + 1)),
    ),
    ClientFault(
        what="sends a body that is not in its content encoding",
        error=_WRONG_FIELD.but(
            message="content-encoding: the body is not valid gzip: "
            "Error -3 while decompressing data: incorrect header check"
        ),
        state=ExchangeState.REJECTED,
        status=400,
        headers={"content-encoding": "gzip"},
    ),
    _headed("compresses its body in an unknown way", _MEDIA, True, content_encoding="compress"),
    _headed("sends another content type", _MEDIA, True, content_type="text/plain"),
    ClientFault(
        what="sends no content type",
        state=ExchangeState.OK,
        status=200,
        upstream=CALLED,
        bill=Bill.COUNTED,
        headers={"content-type": None},
    ),
    ClientFault(
        what="sends a field twice: the last one counts",
        state=ExchangeState.OK,
        status=200,
        upstream=CALLED,
        bill=Bill.COUNTED,
        body=lambda body: b'{"model":"nobody",' + body[1:],
    ),
    ClientFault(
        what="sends a lone surrogate: it is replaced",
        state=ExchangeState.OK,
        status=200,
        upstream=CALLED,
        bill=Bill.COUNTED,
        body=_with(b'"\\ud800"'),
    ),
    _headed("has no key", _NO_KEY, False, authorization=None),
    _headed("has a wrong key", _WRONG_KEY, False, authorization="Bearer sk-wrong"),
    _headed(
        "has a wrong key and waits with its body",
        _WRONG_KEY,
        False,
        authorization="Bearer sk-wrong",
        expect="100-continue",
    ),
]


def _swapped(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda request: request.replace(old, new, 1)


def _sized(make: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Another header where the length stands."""

    def made(request: bytes) -> bytes:
        head, _, body = request.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.startswith(b"content-length")]
        size = str(len(body)).encode()
        return b"\r\n".join((*lines, make(size), b"", body))

    return made


MALFORMATIONS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "a length beside chunks": _sized(
        lambda size: b"content-length: " + size + b"\r\ntransfer-encoding: chunked"
    ),
    "two lengths": _sized(lambda size: b"content-length: " + size + b"\r\ncontent-length: 4"),
    "a signed length": _sized(lambda size: b"content-length: +" + size),
    "a list of lengths": _sized(lambda size: b"content-length: " + size + b", " + size),
    "an unknown coding": _sized(lambda size: b"transfer-encoding: xchunked"),
    "chunks twice": _sized(lambda size: b"transfer-encoding: chunked, chunked"),
    "chunks in no coding": _sized(lambda size: b"transfer-encoding: identity, chunked"),
    "a space before a colon": _swapped(b"host:", b"x-odd : 1\r\nhost:"),
    "a folded header": _swapped(b"host:", b"x-odd: a\r\n b\r\nhost:"),
    "a zero in a header": _swapped(b"host:", b"anthropic-beta: a\x00b\r\nhost:"),
    "a header of 9,000 bytes": _swapped(b"host:", b"x-odd: " + b"o" * 9000 + b"\r\nhost:"),
    "no host": _swapped(b"host:", b"x-host:"),
    "two hosts": _swapped(b"host:", b"host: other.test\r\nhost:"),
    "another version": _swapped(b"HTTP/1.1", b"HTTP/2.0"),
    "no version": lambda request: request.replace(b" HTTP/1.1", b"", 1),
    "line ends without CR": lambda request: request.replace(b"\r\n", b"\n"),
}
HTTP: Final = [
    ClientFault(what=f"sends invalid HTTP: {which}", error=MALFORMED, raw=make)
    for which, make in MALFORMATIONS.items()
]

CLIENT_FAULTS: Final = [*LEAVING, SLOW_READER, SLOW_BODY, *BODIES, *HTTP]
