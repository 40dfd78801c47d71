"""The responses format. Public reference: Responses."""

from __future__ import annotations

from typing import Final

from gateway.core.formats import Family, Format
from gateway.wire.codec import Codec
from gateway.wire.responses.decode import ResponsesDecoder, parse_reply, read_usage
from gateway.wire.responses.encode import ResponsesEncoder, echo, render_reply
from gateway.wire.responses.native import (
    ResponsesRewriter,
    patch_prompt,
    patch_reply,
    without_proofs,
)
from gateway.wire.responses.parse_prompt import parse_prompt
from gateway.wire.responses.render_prompt import render_prompt

CODEC: Final = Codec(
    format=Format.RESPONSES,
    endpoint="/v1/responses",
    upstream_path="/responses",
    image_mark=b'"image_url"',
    family=Family.BETA,
    forwarded_headers=(
        *("openai-", "x-stainless-", "x-codex-"),
        *("originator", "session-id", "thread-id"),
    ),
    count_path="/responses/input_tokens",
    count_fields=frozenset(
        {
            *("input", "instructions", "model", "parallel_tool_calls", "reasoning", "text"),
            *("tool_choice", "tools", "truncation"),
        }
    ),
    parse_prompt=parse_prompt,
    render_prompt=render_prompt,
    patch_prompt=lambda body, _, target: patch_prompt(body, target),
    without_proofs=without_proofs,
    decoder=ResponsesDecoder,
    encoder=ResponsesEncoder,
    rewriter=ResponsesRewriter,
    echo=echo,
    patch_reply=patch_reply,
    parse_reply=parse_reply,
    read_usage=read_usage,
    render_reply=render_reply,
)
