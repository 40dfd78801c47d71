"""The life of a key: it expires, is disabled, is rotated; and health-check keys."""

from __future__ import annotations

import pytest

from gateway.core.formats import Format
from gateway.store.records import ExchangeState, TokenState
from tests.server.key_limits import expected_error, read_error, shift_clock
from tests.support.gateway import RunningGateway
from tests.support.upstream import ScriptedUpstream, fixture_reply

HOUR = 3600
PROBE = "This is a health-check key: it can only list models and count tokens"


async def status(gateway: RunningGateway, key: str) -> int:
    return (await gateway.get("/v1/models", key)).status


@pytest.mark.parametrize("format", Format)
async def test_a_key_expires(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    upstream.respond_with(fixture_reply(format))
    later = gateway.daemon.runtime.now() + HOUR * 10**6
    _, key = await gateway.operations.create_key("for an hour", "default", expires_at=later)
    assert (await gateway.post(format, key=key)).status == 200
    shift_clock(gateway, HOUR - 1)
    assert (await gateway.post(format, key=key)).status == 200
    shift_clock(gateway, HOUR)
    answer = await gateway.post(format, key=key)
    types = ("authentication_error", "authentication_error")
    assert await read_error(answer) == expected_error(
        format, 401, types, "Invalid token", "invalid_api_key"
    )
    assert len(upstream.requests) == 2
    assert len(await gateway.rows(2)) == 2, "a key that is over leaves no row"


async def test_a_disabled_key_is_rejected_until_it_is_enabled(gateway: RunningGateway) -> None:
    token, key = await gateway.operations.create_key("off and on", "default")
    assert await status(gateway, key) == 200
    await gateway.operations.update_key(token.id, state=TokenState.DISABLED)
    assert await status(gateway, key) == 401
    await gateway.operations.update_key(token.id, state=TokenState.ACTIVE)
    assert await status(gateway, key) == 200


async def test_the_key_from_before_a_rotation_works_during_the_overlap(
    gateway: RunningGateway,
) -> None:
    token, old = await gateway.operations.create_key("rotated", "default")
    _, new = await gateway.operations.rotate_key(token.id, HOUR * 10**6)
    assert [await status(gateway, key) for key in (old, new)] == [200, 200]
    first, second = await gateway.rows(2)
    assert (first.token_id, first.notes) == (token.id, "the key from before its rotation")
    assert (second.token_id, second.notes) == (token.id, None)
    shift_clock(gateway, HOUR - 1)
    assert [await status(gateway, key) for key in (old, new)] == [200, 200]
    shift_clock(gateway, HOUR)
    assert [await status(gateway, key) for key in (old, new)] == [401, 200]


async def test_a_rotation_without_overlap_ends_the_old_key_immediately(
    gateway: RunningGateway,
) -> None:
    token, old = await gateway.operations.create_key("rotated", "default")
    _, new = await gateway.operations.rotate_key(token.id, 0)
    assert [await status(gateway, key) for key in (old, new)] == [401, 200]


async def test_only_one_key_from_before_works(gateway: RunningGateway) -> None:
    token, oldest = await gateway.operations.create_key("rotated", "default")
    _, old = await gateway.operations.rotate_key(token.id, HOUR * 10**6)
    _, new = await gateway.operations.rotate_key(token.id, HOUR * 10**6)
    assert [await status(gateway, key) for key in (oldest, old, new)] == [401, 200, 200]


async def test_when_a_rotated_key_expires_so_does_the_old_one(
    gateway: RunningGateway,
) -> None:
    later = gateway.daemon.runtime.now() + HOUR * 10**6
    token, old = await gateway.operations.create_key("rotated", "default", expires_at=later)
    _, new = await gateway.operations.rotate_key(token.id, 2 * HOUR * 10**6)
    shift_clock(gateway, HOUR)
    assert [await status(gateway, key) for key in (old, new)] == [401, 401]


async def test_the_valid_one_of_two_keys_counts(gateway: RunningGateway) -> None:
    token, old = await gateway.operations.create_key("rotated", "default")
    await gateway.operations.rotate_key(token.id, HOUR * 10**6)
    shift_clock(gateway, HOUR)
    bearer = {"authorization": f"Bearer {gateway.key}"}
    async with gateway.http.get("/v1/models", headers=bearer | {"x-api-key": old}) as answer:
        assert answer.status == 200
    assert (await gateway.row()).token_id == gateway.token.id


@pytest.mark.parametrize("format", Format)
async def test_a_health_check_key_cannot_generate(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    token, key = await gateway.operations.create_key("probe", "default", probe=True)
    for streamed in (False, True):
        answer = await gateway.post(format, key=key, stream=streamed)
        types = ("permission_error", "invalid_request_error")
        assert await read_error(answer) == expected_error(
            format, 403, types, PROBE, "permission_denied"
        )
        assert answer.headers["x-should-retry"] == "false"
    for row in await gateway.rows(2):
        assert (row.token_id, row.state, row.status) == (token.id, ExchangeState.REJECTED, 403)
        assert (row.cost_micro, row.usage_source) == (0, "none")
    assert not upstream.requests


async def test_a_health_check_key_can_list_models(simulated_gateway: RunningGateway) -> None:
    gateway = simulated_gateway
    token, key = await gateway.operations.create_key("probe", "default", probe=True)
    assert await status(gateway, key) == 200
    assert (await gateway.get("/v1/models/beta-5.4", key)).status == 200
    counted = await gateway.post(Format.MESSAGES, key=key, path="/v1/messages/count_tokens")
    assert (await counted.json())["input_tokens"] > 0
    for path in ("/healthz", "/readyz"):
        assert (await gateway.get(path, key)).status == 200
    for row in await gateway.rows(3):
        assert (row.token_id, row.state, row.cost_micro) == (token.id, ExchangeState.OK, 0)
    assert (await gateway.operations.get_key(token.id)).cost_micro == 0
