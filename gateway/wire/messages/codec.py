"""The messages format. Public reference: Messages."""

from __future__ import annotations

from typing import Final

from gateway.core.formats import Format
from gateway.wire.codec import Codec
from gateway.wire.error_body import messages_error_body
from gateway.wire.messages.decode import MessagesDecoder, parse_reply, read_usage
from gateway.wire.messages.encode import MessagesEncoder, render_reply
from gateway.wire.messages.native import MessagesRewriter, patch_prompt, patch_reply, without_proofs
from gateway.wire.messages.parse_prompt import parse_prompt
from gateway.wire.messages.render_prompt import render_prompt

CODEC: Final = Codec(
    format=Format.MESSAGES,
    endpoint="/v1/messages",
    upstream_path="/v1/messages",
    image_mark=b'"image"',
    error_paths=("/v1/messages",),
    auth="x-api-key",
    version="2023-06-01",
    forwarded_headers=("anthropic-", "vendor-", "x-stainless-", "x-claude-", "x-app"),
    forwarded_query="beta=true",
    rate_limit_header="anthropic-ratelimit-{resource}-{field}",
    rate_limit_times=True,
    has_prewarm=True,
    count_path="/v1/messages/count_tokens",
    count_fields=frozenset(
        {
            *("cache_control", "messages", "model", "output_config", "system", "thinking"),
            *("tool_choice", "tools"),
        }
    ),
    parse_prompt=parse_prompt,
    render_prompt=render_prompt,
    patch_prompt=patch_prompt,
    without_proofs=without_proofs,
    decoder=MessagesDecoder,
    encoder=MessagesEncoder,
    rewriter=MessagesRewriter,
    patch_reply=patch_reply,
    parse_reply=parse_reply,
    read_usage=read_usage,
    render_reply=render_reply,
    render_error=messages_error_body,
)
