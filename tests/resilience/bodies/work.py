"""What the gateway computes for one request, without sending it."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Final, NamedTuple

import orjson

from gateway.core.events import StopReason
from gateway.core.formats import Format
from gateway.core.parts import Text
from gateway.core.reply import Reply
from gateway.core.target import Target
from gateway.errors import GatewayError
from gateway.wire.codec import ReplyMetadata
from gateway.wire.json.edit import edit_object
from gateway.wire.registry import CODECS
from gateway.wire.stream.emulation import event_transformer
from gateway.wire.stream.event_builder import encode_reply
from gateway.wire.token_estimate import estimate_tokens

TARGETS: Final = (
    Target(model="m", origin="o"),
    Target(model="m", structured=False, custom_tools=True, cache_marks=True, system_turns=True),
)
"""With emulation of what the target lacks, and with what the default lacks."""
_REPLY: Final = Reply(id="r", model="m", parts=(Text("Hi"),), stop=StopReason.END_TURN, usage=None)


class Pair(NamedTuple):
    """Without an `upstream` format the body goes there as it is, but for edits."""

    client: Format
    upstream: Format | None
    target: Target


PAIRS: Final = {
    client: [
        Pair(client, None, TARGETS[0]),
        *(Pair(client, upstream, target) for upstream in Format for target in TARGETS),
    ]
    for client in Format
}


class Work(NamedTuple):
    """`seconds` of the processor; `size` of what goes to the upstream, in bytes."""

    seconds: float
    size: int


def measure(raw: bytes, pair: Pair) -> Work:
    started = time.thread_time()
    size = 0
    with suppress(GatewayError, TypeError):  # too much for the format, or nested too deeply
        size = len(_process(raw, *pair))
    return Work(time.thread_time() - started, size)


def _process(raw: bytes, client: Format, upstream: Format | None, target: Target) -> bytes:
    codec, body = CODECS[client], orjson.loads(raw)
    prompt = codec.parse_prompt(body)
    estimate_tokens(prompt)
    if upstream is None:
        patched = codec.patch_prompt(body, prompt, target)
        return edit_object(raw, body, patched) or orjson.dumps(patched)
    rendering = CODECS[upstream].render_prompt(prompt, target)
    event_transformer(prompt, rendering)
    metadata = ReplyMetadata(reply_id="r", created=1)
    encode_reply(_REPLY, codec.encoder(prompt, metadata))
    reply: Any = codec.render_reply(_REPLY, prompt, metadata)[0]
    orjson.dumps(reply)
    return orjson.dumps(rendering.body)
