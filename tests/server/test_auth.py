"""Keys at the door: either header counts, every bad key gets the same answer."""

from __future__ import annotations

import pytest

from gateway.core.formats import Format
from tests.support.gateway import PATHS, RunningGateway, request_body
from tests.support.upstream import ScriptedUpstream, fixture_reply

REPLY = fixture_reply("chat")
STRANGER = "sk-" + "A" * 48
SPELLINGS = ["Bearer {}", "bearer {}", "BEARER   {} "]


async def _get_models(house: RunningGateway, **headers: str) -> tuple[int, dict[str, object]]:
    async with house.http.get("/v1/models", headers=headers) as answer:
        return answer.status, await answer.json()


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_a_bearer(house: RunningGateway, spelling: str) -> None:
    status, _ = await _get_models(house, authorization=spelling.format(house.key))
    assert status == 200


async def test_an_api_key(house: RunningGateway) -> None:
    status, _ = await _get_models(house, **{"x-api-key": f" {house.key} "})
    assert status == 200


@pytest.mark.parametrize("valid", ["x-api-key", "authorization"])
async def test_where_two_differ_either_valid_one_counts(house: RunningGateway, valid: str) -> None:
    headers = {"x-api-key": STRANGER, "authorization": f"Bearer {STRANGER}"}
    headers[valid] = headers[valid].replace(STRANGER, house.key)
    status, _ = await _get_models(house, **headers)
    assert status == 200


async def test_the_api_key_is_looked_at_first(
    house: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(REPLY)
    token, key = await house.operations.create_key("first", "default")
    await house.post(Format.CHAT, headers={"x-api-key": key})
    assert (await house.row()).token_id == token.id


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {STRANGER}"},
        {"authorization": "Bearer sk-"},
        {"authorization": "Bearer ' OR 1=1--"},
        {"authorization": "bearer \xe4\xf6\xfc"},
        {"authorization": "Bearer " + "A" * 7000},
        {"x-api-key": STRANGER},
        {"x-api-key": "\U0001f511"},
        {"x-api-key": STRANGER, "authorization": f"Bearer {STRANGER[::-1]}"},
    ],
    ids=lambda headers: "+".join(headers),
)
async def test_bad_keys_are_all_answered_alike(
    house: RunningGateway, headers: dict[str, str]
) -> None:
    async with house.http.post(
        PATHS[Format.CHAT], json=request_body(Format.CHAT), headers=headers
    ) as answer:
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.headers["x-should-retry"] == "false"
        error = (await answer.json())["error"]
    assert error == {
        "message": "Invalid token",
        "type": "invalid_request_error",
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
async def test_no_key(house: RunningGateway, headers: dict[str, str]) -> None:
    status, body = await _get_models(house, **headers)
    assert status == 401
    assert body["error"]["message"] == "Auth rejected: no API key provided"  # type: ignore[index]


async def test_a_revocation_binds_from_the_next_request_on(
    house: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(REPLY)
    token, key = await house.operations.create_key("short-lived", "default")
    assert (await house.post(Format.CHAT, key=key)).status == 200
    await house.operations.revoke_key(token.id)
    refused = await house.post(Format.CHAT, key=key)
    assert refused.status == 401
    assert (await refused.json())["error"]["message"] == "Invalid token"
    assert len(upstream.requests) == 1


async def test_a_bad_key_leaves_no_row(house: RunningGateway) -> None:
    await house.post(Format.CHAT, key=STRANGER)
    await house.post(Format.CHAT, b"not even JSON")
    (row,) = await house.rows()
    assert row.error_code == "invalid_json"
