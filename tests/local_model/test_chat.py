"""Chat-completions through the gateway to a chat upstream: a real stream from a real model.

Asserts shape, usage, limits and errors; must not care what the model says.
"""

from __future__ import annotations

import openai
import pytest

from .conftest import Gateway

MODEL = "beta-local"
LIMIT = 8
TOO_LONG = "word " * 3000  # tokens; the model's context is 2048

pytestmark = pytest.mark.local_model


def test_body(gateway: Gateway) -> None:
    with gateway.openai() as client:
        completion = client.chat.completions.create(
            model=MODEL,
            max_tokens=LIMIT,
            messages=[
                {"role": "system", "content": "You are brief."},
                {"role": "user", "content": "Say hi."},
            ],
            extra_body={"ignore_eos": True},  # llama.cpp's own: the limit alone ends the reply
        )
    assert completion.object == "chat.completion"
    assert completion.model == MODEL
    [choice] = completion.choices
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason == "length"
    assert completion.usage is not None
    assert completion.usage.completion_tokens == LIMIT
    assert completion.usage.prompt_tokens > 0
    row = gateway.row(completion._request_id)
    assert row["model"] == MODEL
    assert row["input_tokens"] == completion.usage.prompt_tokens
    assert row["output_tokens"] == LIMIT


def test_stream(gateway: Gateway) -> None:
    with (
        gateway.openai() as client,
        client.chat.completions.create(
            model=MODEL,
            max_tokens=LIMIT,
            messages=[{"role": "user", "content": "Say hi."}],
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True},
        ) as stream,
    ):
        request_id = stream.response.headers["x-request-id"]
        chunks = list(stream)
    assert {chunk.model for chunk in chunks} == {MODEL}
    assert len({chunk.id for chunk in chunks}) == 1
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert choices[0].delta.role == "assistant"
    assert "".join(choice.delta.content or "" for choice in choices)
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["length"]
    [usage] = [chunk.usage for chunk in chunks if chunk.usage]
    assert usage.completion_tokens == LIMIT
    row = gateway.row(request_id)
    assert row["input_tokens"] == usage.prompt_tokens > 0
    assert row["output_tokens"] == LIMIT


def test_unrequested_usage_is_metered_but_not_shown(gateway: Gateway) -> None:
    with (
        gateway.openai() as client,
        client.chat.completions.create(
            model=MODEL,
            max_tokens=LIMIT,
            messages=[{"role": "user", "content": "Say hi."}],
            stream=True,
            extra_body={"ignore_eos": True},
        ) as stream,
    ):
        request_id = stream.response.headers["x-request-id"]
        chunks = list(stream)
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)
    assert gateway.row(request_id)["output_tokens"] == LIMIT


def test_stream_helper(gateway: Gateway) -> None:
    with (
        gateway.openai() as client,
        client.chat.completions.stream(
            model=MODEL,
            max_completion_tokens=LIMIT,
            messages=[{"role": "user", "content": "Say hi."}],
            extra_body={"ignore_eos": True},
        ) as stream,
    ):
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        completion = stream.current_completion_snapshot
    assert "".join(deltas) == completion.choices[0].message.content
    assert completion.choices[0].finish_reason == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_context_too_long(gateway: Gateway, stream: bool) -> None:
    with gateway.openai() as client, pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(
            model=MODEL,
            max_tokens=LIMIT,
            messages=[{"role": "user", "content": TOO_LONG}],
            stream=stream,
        )
    error = refused.value
    assert isinstance(error.body, dict)
    assert error.body.keys() >= {"message", "type", "param", "code"}
    assert error.type == "invalid_request_error"
    assert error.code is None or isinstance(error.code, str)
    assert "2048" in error.body["message"]
    assert gateway.row(error.request_id)["model"] == MODEL
