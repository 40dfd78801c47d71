"""Messages through the gateway to a messages upstream: a real stream from a real model.

Asserts shape, usage, limits and errors; must not care what the model says.
"""

from __future__ import annotations

import anthropic
import pytest

from .conftest import Gateway

MODEL = "beta-local"
LIMIT = 8
TOO_LONG = "word " * 3000  # tokens; the model's context is 2048

pytestmark = pytest.mark.local_model


def whole_prompt(usage: anthropic.types.Usage) -> int:
    """Cache reads are not part of this format's `input_tokens`; the model caches every prompt."""
    return usage.input_tokens + (usage.cache_read_input_tokens or 0)


def test_body(gateway: Gateway) -> None:
    with gateway.anthropic() as client:
        message = client.messages.create(
            model=MODEL,
            max_tokens=LIMIT,
            system="You are brief.",
            messages=[{"role": "user", "content": "Say hi."}],
            extra_body={"ignore_eos": True},  # llama.cpp's own: the limit alone ends the reply
        )
    assert (message.type, message.role, message.model) == ("message", "assistant", MODEL)
    [block] = message.content
    assert block.type == "text"
    assert block.text
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == LIMIT
    assert whole_prompt(message.usage) > 0
    row = gateway.row(message._request_id)
    assert row["model"] == MODEL
    assert row["input_tokens"] == whole_prompt(message.usage)
    assert row["output_tokens"] == LIMIT


def test_stream(gateway: Gateway) -> None:
    with (
        gateway.anthropic() as client,
        client.messages.create(
            model=MODEL,
            max_tokens=LIMIT,
            messages=[{"role": "user", "content": "Say hi."}],
            stream=True,
            extra_body={"ignore_eos": True},
        ) as stream,
    ):
        events = [event for event in stream if event.type != "content_block_delta"]
    assert [event.type for event in events] == [
        "message_start",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_stream_helper(gateway: Gateway) -> None:
    with (
        gateway.anthropic() as client,
        client.messages.stream(
            model=MODEL,
            max_tokens=LIMIT,
            messages=[{"role": "user", "content": "Say hi."}],
            extra_body={"ignore_eos": True},
        ) as stream,
    ):
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
        request_id = stream.response.headers["request-id"]
    [block] = message.content
    assert block.type == "text"
    assert block.text == text != ""
    assert message.model == MODEL
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == LIMIT
    row = gateway.row(request_id)
    assert row["input_tokens"] == whole_prompt(message.usage) > 0
    assert row["output_tokens"] == LIMIT


@pytest.mark.parametrize("stream", [False, True])
def test_context_too_long(gateway: Gateway, stream: bool) -> None:
    with gateway.anthropic() as client, pytest.raises(anthropic.BadRequestError) as refused:
        client.messages.create(
            model=MODEL,
            max_tokens=LIMIT,
            messages=[{"role": "user", "content": TOO_LONG}],
            stream=stream,
        )
    body = refused.value.body
    assert isinstance(body, dict)
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    assert "2048" in body["error"]["message"]
    assert body["request_id"] == refused.value.request_id
    assert gateway.row(refused.value.request_id)["model"] == MODEL
