"""Exceeded context windows, with messages of real upstreams."""

from __future__ import annotations

import pytest

from gateway.core.events import Failure, FailureKind
from gateway.routing.failure_policy import ContextOverflow, context_overflow


def failure(message: str, **fields: str) -> Failure:
    return Failure(kind=FailureKind.RESPONSE, status=400, message=message, **fields)  # type: ignore[arg-type]  # fields of all kinds


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("prompt is too long: 213462 tokens > 200000 maximum", ContextOverflow(213462, 200000)),
        ("Prompt is too long", ContextOverflow()),
        (
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
            ContextOverflow(),
        ),
        (
            "This model's maximum context length is 128000 tokens. However, your messages resulted "
            "in 130050 tokens (129000 in the messages, 1050 in the functions). Please reduce the "
            "length of the messages or functions.",
            ContextOverflow(130050, 128000),
        ),
        (
            "This model's maximum context length is 4097 tokens. However, you requested 5000 tokens"
            " (904 in the messages, 4096 in the completion).",
            ContextOverflow(5000, 4097, 4096),
        ),
        (
            "This model's maximum context length is 4096 tokens. However, you requested 16 output "
            "tokens and your prompt contains at least 4081 input tokens, for a total of at least "
            "4097 tokens.",
            ContextOverflow(4097, 4096, 16),
        ),
        ("This model's maximum context length is 8192 tokens, sorry.", ContextOverflow()),
        (
            "Your input exceeds the context window of this model. Please adjust your input and try "
            "again.",
            ContextOverflow(),
        ),
        (
            "request (5120 tokens) exceeds the available context size (4096 tokens), try increasing"
            " it",
            ContextOverflow(5120, 4096),
        ),
        ("the request exceeds the available context size, try increasing it", ContextOverflow()),
    ],
)
def test_vendor_messages(message: str, expected: ContextOverflow) -> None:
    assert context_overflow(failure(message)) == expected


@pytest.mark.parametrize(
    "fields", [{"code": "context_length_exceeded"}, {"type": "exceed_context_size_error"}]
)
def test_a_code_or_type_is_enough(fields: dict[str, str]) -> None:
    assert context_overflow(failure("No.", **fields)) == ContextOverflow()


def test_counts_in_the_body() -> None:
    body = '{"error":{"message":"too long","n_prompt_tokens": 5120,"n_ctx":4096}}'
    result = context_overflow(failure("No.", type="exceed_context_size_error", body=body))
    assert result == ContextOverflow(5120, 4096)


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens: 200000 > 128000, which is the maximum allowed number of output tokens",
        "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context "
        "length is 4096 tokens and your request has 10 input tokens (5000 > 4096 - 10).",
        "Invalid 'messages[0].content': string too long. Expected a string with maximum length 9.",
        "messages.0.content: text is too long",
        "",
    ],
)
def test_other_errors(message: str) -> None:
    assert context_overflow(failure(message)) is None
