"""The chat format. Public reference: Chat Completions."""

from __future__ import annotations

from typing import Final

from gateway.core.formats import Format
from gateway.wire.chat.decode import ChatDecoder, parse_reply, read_usage
from gateway.wire.chat.encode import ChatEncoder, render_reply
from gateway.wire.chat.native import ChatRewriter, patch_prompt, patch_reply
from gateway.wire.chat.parse_prompt import parse_prompt
from gateway.wire.chat.reasoning import without_proofs
from gateway.wire.chat.render_prompt import render_prompt
from gateway.wire.codec import Codec

CODEC: Final = Codec(
    format=Format.CHAT,
    endpoint="/v1/chat/completions",
    upstream_path="/chat/completions",
    image_mark=b'"image_url"',
    error_paths=(
        *("/v1/chat/", "/v1/responses", "/v1/conversations"),
        *("/v1/completions", "/v1/embeddings"),
    ),
    forwarded_headers=("openai-", "x-stainless-"),
    parse_prompt=parse_prompt,
    render_prompt=render_prompt,
    patch_prompt=patch_prompt,
    without_proofs=without_proofs,
    decoder=ChatDecoder,
    encoder=ChatEncoder,
    rewriter=ChatRewriter,
    patch_reply=patch_reply,
    parse_reply=parse_reply,
    read_usage=read_usage,
    render_reply=render_reply,
)
