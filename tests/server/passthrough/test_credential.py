"""A client's own credential goes to the channel that takes it, and nowhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.config.document import ConfigError
from gateway.config.load import parse_config
from gateway.core.formats import Format
from gateway.store.records import ExchangeState
from tests.support.gateway import ALPHA, BETA, RunningGateway, channel
from tests.support.shared_gateway import as_new, in_the_modules_loop
from tests.support.upstream import ScriptedUpstream, fixture_reply, json_response

pytestmark = pytest.mark.shared_gateway

OWN = "own-credential-4711-0815"
BOTH = {ALPHA: "alpha-up", BETA: "beta-up"}


def taking(format: Format, address: str, **changes: Any) -> dict[str, Any]:
    accounts = [{"name": "clients", "key": "none"}]
    own = {"name": "own", "auth": "client", "accounts": accounts, "models": BOTH, "priority": 9}
    return channel(format, address, **own | changes)


@in_the_modules_loop()
async def two(
    gateway_of_module: RunningGateway, upstream: ScriptedUpstream
) -> AsyncIterator[RunningGateway]:
    """A channel that takes credentials, and one with a key of the gateway's."""
    channels = [
        taking(Format.MESSAGES, upstream.address, endpoints=["embeddings"]),
        channel(Format.MESSAGES, upstream.address, name="shared", models={ALPHA: "alpha-up"}),
    ]
    async with as_new(gateway_of_module, channels) as gateway:
        yield gateway


SENT: dict[str, tuple[dict[str, str], dict[str, str | None]]] = {
    "a subscription": ({"x-gateway-key": "KEY", "authorization": f"Bearer {OWN}"},
                       {"authorization": f"Bearer {OWN}", "x-api-key": None}),
    "a key": ({"x-gateway-key": "KEY", "x-api-key": OWN, "authorization": ""},
              {"authorization": None, "x-api-key": OWN}),
    "beside the gateway's key": ({"x-api-key": "KEY", "authorization": f"Bearer {OWN}"},
                                 {"authorization": f"Bearer {OWN}", "x-api-key": None}),
    "none": ({"x-api-key": "KEY", "authorization": "Bearer KEY"},
             {"authorization": None, "x-api-key": "upstream-secret-4471"}),
}  # fmt: skip


async def ask(
    gateway: RunningGateway, headers: Mapping[str, str], path: str | None = None, **fields: Any
) -> Any:
    filled = {name: value.replace("KEY", gateway.key) for name, value in headers.items()}
    return await gateway.post(Format.MESSAGES, headers=filled, path=path, **fields)


@pytest.mark.parametrize("case", SENT)
async def test_headers(two: RunningGateway, upstream: ScriptedUpstream, case: str) -> None:
    headers, sent = SENT[case]
    upstream.respond_with(fixture_reply("messages"))
    assert (await ask(two, headers)).status == 200
    received = upstream.last_request.headers
    assert {name: received.get(name) for name in sent} == sent
    assert "x-gateway-key" not in received
    assert (await two.row()).channel == ("shared" if case == "none" else "own")


TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


@pytest.mark.parametrize("status", TYPES)
async def test_a_refused_credential_concerns_its_client_alone(
    two: RunningGateway, upstream: ScriptedUpstream, status: int
) -> None:
    error = {"type": "error", "error": {"type": "x", "message": f"no to {OWN} now"}}
    upstream.respond_with(json_response(error, status), fixture_reply("messages"))
    headers = SENT["a subscription"][0]
    answer = await ask(two, headers)
    assert answer.status == status
    told = (await answer.json())["error"]
    assert (told["type"], told["message"]) == (TYPES[status], "no to [redacted] now")
    assert len(upstream.requests) == 1
    assert (await ask(two, headers)).status == 200
    failed = (await two.rows(2))[0]
    assert (failed.state, failed.channel) == (ExchangeState.ERROR, "own")
    assert OWN not in repr(failed)


async def test_no_other_account_takes_over(two: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(json_response({}, 500))
    assert (await ask(two, SENT["a subscription"][0])).status == 503
    assert {each.key for each in upstream.requests} == {OWN}


async def test_a_model_of_that_channel_alone(
    two: RunningGateway, upstream: ScriptedUpstream
) -> None:
    answer = await ask(two, SENT["none"][0], model=BETA)
    assert answer.status == 403
    assert "the key of the gateway in x-gateway-key" in (await answer.json())["error"]["message"]
    body, path = {"model": BETA, "input": "a"}, "/v1/embeddings"
    assert (await ask(two, SENT["none"][0], body=body, path=path)).status == 403
    assert upstream.requests == []
    upstream.respond_with(json_response({"usage": {"total_tokens": 1}}))
    assert (await ask(two, SENT["a key"][0], body=body, path=path)).status == 200
    assert upstream.last_request.key == OWN


@pytest.mark.parametrize("counted", [True, False])
async def test_counting_and_caching(
    two: RunningGateway, upstream: ScriptedUpstream, counted: bool
) -> None:
    reply = json_response({"input_tokens": 5}) if counted else fixture_reply("messages")
    upstream.respond_with(reply)
    path = "/v1/messages/count_tokens" if counted else None
    assert (await ask(two, SENT["a subscription"][0], path=path)).status == 200
    assert upstream.last_request.key == OWN
    endpoints = two.daemon.runtime.current.upstream._endpoints
    assert OWN.encode() not in b"".join(endpoints["own", "clients"].cached_heads.values())


@pytest.mark.parametrize(
    "changes",
    [
        {"accounts": [{"name": "a", "key": "secret-0123456789"}]},
        {"accounts": [{"name": name, "key": "none"} for name in ("a", "b")]},
        {"discover": ["*"]},
    ],
)
def test_invalid_channels(tmp_path: Path, changes: dict[str, Any]) -> None:

    text = orjson.dumps(
        {"state_dir": str(tmp_path), "channels": [taking(Format.CHAT, "http://x", **changes)]}
    )
    with pytest.raises(ConfigError, match="auth: client needs"):
        parse_config(text.decode())
