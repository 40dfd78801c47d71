"""Responses through the gateway to a responses upstream: a real stream from a real model.

llama.cpp speaks this format loosely: its events carry no indexes (the client library's stream
helper needs them, so the stream is read raw) and a reply that hits the limit is `completed`.
Asserts shape, usage, limits and errors; must not care what the model says.
"""

from __future__ import annotations

import openai
import pytest

from .conftest import Gateway

MODEL = "beta-local"
LIMIT = 16  # the least that the format allows
TOO_LONG = "word " * 3000  # tokens; the model's context is 2048

pytestmark = pytest.mark.local_model


def test_body(gateway: Gateway) -> None:
    with gateway.openai() as client:
        response = client.responses.create(
            model=MODEL,
            max_output_tokens=LIMIT,
            instructions="You are brief.",
            input="Say hi.",
            extra_body={"ignore_eos": True},  # llama.cpp's own: the limit alone ends the reply
        )
    assert response.object == "response"
    assert response.model == MODEL
    assert response.status in ("completed", "incomplete")
    [item] = response.output
    assert item.type == "message"
    assert [part.type for part in item.content] == ["output_text"]
    assert response.output_text
    assert response.usage is not None
    assert response.usage.output_tokens == LIMIT
    assert response.usage.input_tokens > 0
    row = gateway.row(response._request_id)
    assert row["model"] == MODEL
    assert row["input_tokens"] == response.usage.input_tokens
    assert row["output_tokens"] == LIMIT


def test_stream(gateway: Gateway) -> None:
    with (
        gateway.openai() as client,
        client.responses.create(
            model=MODEL,
            max_output_tokens=LIMIT,
            input=[{"role": "user", "content": "Say hi."}],
            stream=True,
            store=False,
            extra_body={"ignore_eos": True},
        ) as stream,
    ):
        request_id = stream.response.headers["x-request-id"]
        events = list(stream)
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    types = {event.type for event in events}
    assert types >= {"response.output_item.added", "response.output_item.done"}
    last = events[-1]
    assert last.type == "response.completed" or last.type == "response.incomplete"
    assert last.response.model == MODEL
    first = events[0]
    assert first.type == "response.created"
    assert first.response.id == last.response.id
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == last.response.output_text != ""
    assert last.response.usage is not None
    assert last.response.usage.output_tokens == LIMIT
    row = gateway.row(request_id)
    assert row["input_tokens"] == last.response.usage.input_tokens > 0
    assert row["output_tokens"] == LIMIT


@pytest.mark.parametrize("stream", [False, True])
def test_context_too_long(gateway: Gateway, stream: bool) -> None:
    with gateway.openai() as client, pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(
            model=MODEL, max_output_tokens=LIMIT, input=TOO_LONG, stream=stream, store=False
        )
    error = refused.value
    assert isinstance(error.body, dict)
    assert error.body.keys() >= {"message", "type", "param", "code"}
    assert error.type == "invalid_request_error"
    assert error.code is None or isinstance(error.code, str)
    assert "2048" in error.body["message"]
    assert gateway.row(error.request_id)["model"] == MODEL
