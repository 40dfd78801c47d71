"""Keys: either header counts, every bad key gets the same error."""

from __future__ import annotations

import pytest

from gateway.core.formats import Format
from tests.support.gateway import PATHS, RunningGateway, request_body
from tests.support.upstream import ScriptedUpstream, fixture_reply

pytestmark = pytest.mark.shared_gateway

REPLY = fixture_reply("chat")
UNKNOWN_KEY = "sk-" + "A" * 48
SPELLINGS = ["Bearer {}", "bearer {}", "BEARER   {} "]


async def _get_models(gateway: RunningGateway, **headers: str) -> tuple[int, dict[str, object]]:
    async with gateway.http.get("/v1/models", headers=headers) as answer:
        return answer.status, await answer.json()


@pytest.mark.parametrize("scheme", SPELLINGS)
async def test_a_bearer_token(gateway: RunningGateway, scheme: str) -> None:
    status, _ = await _get_models(gateway, authorization=scheme.format(gateway.key))
    assert status == 200


async def test_an_api_key(gateway: RunningGateway) -> None:
    status, _ = await _get_models(gateway, **{"x-api-key": f" {gateway.key} "})
    assert status == 200


@pytest.mark.parametrize("valid", ["x-api-key", "authorization"])
async def test_either_of_two_credentials_can_be_valid(gateway: RunningGateway, valid: str) -> None:
    headers = {"x-api-key": UNKNOWN_KEY, "authorization": f"Bearer {UNKNOWN_KEY}"}
    headers[valid] = headers[valid].replace(UNKNOWN_KEY, gateway.key)
    status, _ = await _get_models(gateway, **headers)
    assert status == 200


async def test_the_api_key_header_is_checked_first(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(REPLY)
    token, key = await gateway.operations.create_key("first", "default")
    await gateway.post(Format.CHAT, headers={"x-api-key": key})
    assert (await gateway.row()).token_id == token.id


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {UNKNOWN_KEY}"},
        {"authorization": "Bearer sk-"},
        {"authorization": "Bearer ' OR 1=1--"},
        {"authorization": "bearer \xe4\xf6\xfc"},
        {"authorization": "Bearer " + "A" * 7000},
        {"x-api-key": UNKNOWN_KEY},
        {"x-api-key": "\U0001f511"},
        {"x-api-key": UNKNOWN_KEY, "authorization": f"Bearer {UNKNOWN_KEY[::-1]}"},
    ],
    ids=lambda headers: "+".join(headers),
)
async def test_bad_keys_all_get_the_same_error(
    gateway: RunningGateway, headers: dict[str, str]
) -> None:
    async with gateway.http.post(
        PATHS[Format.CHAT], json=request_body(Format.CHAT), headers=headers
    ) as answer:
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.headers["x-should-retry"] == "false"
        error = (await answer.json())["error"]
    assert error == {
        "message": "Invalid token",
        "type": "authentication_error",
        "param": None,
        "code": "invalid_api_key",
    }


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Basic c2s="},
        {"x-api-key": " "},
        {"cookie": "key=sk-1"},
    ],
    ids=repr,
)
async def test_no_key(gateway: RunningGateway, headers: dict[str, str]) -> None:
    status, body = await _get_models(gateway, **headers)
    assert status == 401
    assert body["error"]["message"] == "Auth rejected: no API key provided"  # type: ignore[index]


async def test_a_revocation_applies_from_the_next_request(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(REPLY)
    token, key = await gateway.operations.create_key("short-lived", "default")
    assert (await gateway.post(Format.CHAT, key=key)).status == 200
    await gateway.operations.revoke_key(token.id)
    refused = await gateway.post(Format.CHAT, key=key)
    assert refused.status == 401
    assert (await refused.json())["error"]["message"] == "Invalid token"
    assert len(upstream.requests) == 1


async def test_a_bad_key_leaves_no_row(gateway: RunningGateway) -> None:
    await gateway.post(Format.CHAT, key=UNKNOWN_KEY)
    await gateway.post(Format.CHAT, b"not even JSON")
    (row,) = await gateway.rows()
    assert row.error_code == "invalid_json"
