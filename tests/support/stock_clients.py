"""The stock libraries of clients, with a gateway as their base address."""

from __future__ import annotations

from typing import Any

from anthropic import AsyncAnthropic
from anthropic import DefaultAsyncHttpxClient as AnthropicHttp
from openai import AsyncOpenAI
from openai import DefaultAsyncHttpxClient as OpenAIHttp

from tests.support.gateway import RunningGateway


def open_openai(gateway: RunningGateway, **options: Any) -> AsyncOpenAI:
    """Without certificates of authorities, which take 30 ms to read: nothing here has TLS."""
    return AsyncOpenAI(
        base_url=f"{gateway.address}/v1",
        **{"api_key": gateway.key, "max_retries": 0} | options,
        http_client=OpenAIHttp(verify=False),
    )


def open_anthropic(gateway: RunningGateway, **options: Any) -> AsyncAnthropic:
    """Without certificates of authorities, as `open_openai`."""
    return AsyncAnthropic(
        base_url=gateway.address,
        **{"api_key": gateway.key, "max_retries": 0} | options,
        http_client=AnthropicHttp(verify=False),
    )
