"""The pairs of a client's format and an upstream's, and a gateway in which a model's name says
which upstream is asked. Independent of what is tested.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from gateway.core.formats import Format
from gateway.store.records import ExchangeState, RequestRow
from tests.conformance.clients.base import Conversation
from tests.conformance.clients.chat import ChatConversation
from tests.conformance.clients.messages import MessagesConversation
from tests.conformance.clients.responses import ResponsesConversation
from tests.conformance.rules.responses import WITHOUT_REASONING
from tests.support.gateway import RunningGateway, channel, run_gateway

UPSTREAM_MODEL: Final = "upstream-model"


@dataclass(frozen=True, slots=True)
class Pair:
    """`again`: the lane that re-encodes although the formats are equal."""

    client: Format
    upstream: Format
    again: bool = False

    def __str__(self) -> str:
        return f"{self.client} → {self.upstream}{' again' if self.again else ''}"

    @property
    def id(self) -> str:
        return f"{self.client}-{'again' if self.again else self.upstream}"

    @property
    def native(self) -> bool:
        return self.client is self.upstream and not self.again

    @property
    def model(self) -> str:
        return model_on(self.upstream, again=self.again)


PAIRS: Final = (
    *(Pair(client, upstream) for client in Format for upstream in Format),
    *(Pair(format, format, again=True) for format in Format),
)


def only(pairs: Iterable[Pair]) -> pytest.MarkDecorator:
    """A test of some pairs alone."""
    return pytest.mark.parametrize("pair", [*pairs], ids=lambda pair: pair.id, indirect=True)


CROSSINGS: Final = tuple(pair for pair in PAIRS if not pair.native)
"""Where the gateway speaks itself, and does not only pass on what it was told."""
FOREIGN: Final = tuple(pair for pair in PAIRS if pair.client is not pair.upstream)
"""Where the formats differ."""
REPAIRED: Final = tuple(
    pair for pair in CROSSINGS if pair != Pair(Format.RESPONSES, Format.RESPONSES, again=True)
)
"""Where a request that no vendor takes becomes one that it takes. In its own format responses asks
as its client did, whichever lane it is."""
OLDER: Final = "alpha-older"
"""A model of messages that thinks by a budget and has no schemas for its answers."""
PLAIN: Final = "beta-plain"
"""A model of responses that does not reason."""


def model_on(upstream: Format, *, again: bool = False) -> str:
    """The id of the model that only a channel of this format has."""
    family = "alpha" if upstream is Format.MESSAGES else "beta"
    return f"{family}-on-{upstream}{'-again' if again else ''}"


def pair_config(address: str) -> dict[str, Any]:
    """Channels that all lead to this address, and their models."""
    ids = {model_on(upstream, again=again) for upstream in Format for again in (False, True)}
    traits = {"thinking": "budget", "structured": False, "prefill": False}
    older = {"name": "older", "models": {OLDER: UPSTREAM_MODEL}, "traits": traits}
    plain = {"name": "plain", "models": {PLAIN: WITHOUT_REASONING}, "traits": {"efforts": []}}
    ids |= {OLDER, PLAIN}
    return {
        "channels": [
            channel(Format.MESSAGES, address, **older),
            channel(Format.RESPONSES, address, **plain),
            *_main_channels(address),
        ],
        "models": [{"id": id, "family": id.partition("-")[0]} for id in sorted(ids)],
    }


def _main_channels(address: str) -> list[dict[str, Any]]:
    return [
        channel(
            upstream,
            address,
            name=f"{upstream}{'-again' if again else ''}",
            models={model_on(upstream, again=again): UPSTREAM_MODEL},
            traits={"thinking": "adaptive"},
            **({"lane": "translated"} if again else {}),
        )
        for upstream in Format
        for again in (False, True)
    ]


@dataclass(frozen=True, slots=True)
class Clients:
    """The stock libraries, each with the gateway as its base address."""

    gateway: RunningGateway
    openai: AsyncOpenAI
    anthropic: AsyncAnthropic

    def conversation(self, client: Format, model: str) -> Conversation:
        match client:
            case Format.CHAT:
                return ChatConversation(self.openai, model)
            case Format.MESSAGES:
                return MessagesConversation(self.anthropic, model)
            case Format.RESPONSES:
                return ResponsesConversation(self.openai, model)

    async def newest_rows(self, count: int) -> list[RequestRow]:
        """What the ledger says of the last exchanges, oldest first, once all of them are over."""
        async with asyncio.timeout(5):
            while True:
                rows = (await self.gateway.operations.list_requests(limit=count)).rows
                if all(row.state is not ExchangeState.RUNNING for row in rows):
                    return rows[::-1]
                await asyncio.sleep(0.002)


@asynccontextmanager
async def clients_of(
    state_dir: Path, channels: list[dict[str, Any]], **config: Any
) -> AsyncIterator[Clients]:
    """One gateway and one client of each library: to make them takes longer than most tests."""
    async with (
        run_gateway(state_dir, channels, **config) as gateway,
        AsyncOpenAI(
            base_url=f"{gateway.address}/v1", api_key=gateway.key, max_retries=0, timeout=10
        ) as openai,
        AsyncAnthropic(
            base_url=gateway.address, api_key=gateway.key, max_retries=0, timeout=10
        ) as anthropic,
    ):
        yield Clients(gateway, openai, anthropic)
