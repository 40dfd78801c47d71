"""What a key may use, from where and with which client: lists of models, addresses, user agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.store.records import ExchangeState, UserAgentMode
from tests.server.key_limits import ErrorReply, expected_error, read_error
from tests.support.gateway import ALPHA, BETA, RunningGateway, channels, run_gateway
from tests.support.upstream import ScriptedUpstream, fixture_reply

DENIED = ("permission_error", "invalid_request_error")
NOT_ALLOWED = ErrorReply(
    400, "invalid_request_error", "user agent not allowed", "user_agent_not_allowed"
)
CLIENT_ADDRESS = "203.0.113.9"


async def models(gateway: RunningGateway, key: str) -> list[str]:
    return [each["id"] for each in (await (await gateway.get("/v1/models", key)).json())["data"]]


async def test_a_list_of_models(gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
    upstream.respond_with(fixture_reply("chat"), fixture_reply("messages"))
    token, key = await gateway.operations.create_key("alpha alone", "default", models=("alpha-*",))
    assert set(await models(gateway, gateway.key)) == {ALPHA, BETA}
    assert await models(gateway, key) == [ALPHA]
    assert (await gateway.get(f"/v1/models/{ALPHA}", key)).status == 200
    assert (await gateway.get(f"/v1/models/{BETA}", key)).status == 404
    for count, format in ((5, Format.CHAT), (7, Format.MESSAGES)):
        answer = await gateway.post(format, key=key, model=BETA)
        message = f"The model {BETA} is not allowed for this key"
        assert await read_error(answer) == expected_error(
            format, 403, DENIED, message, "permission_denied"
        )
        row = (await gateway.rows(count))[-1]
        assert (row.state, row.status, row.model) == (ExchangeState.REJECTED, 403, BETA)
        assert (await gateway.post(format, key=key, model=ALPHA)).status == 200
    counting = "/v1/messages/count_tokens"
    counted = await gateway.post(Format.MESSAGES, model=BETA, key=key, path=counting)
    assert counted.status == 403
    assert len(upstream.requests) == 2
    # Who may use no model of the family that responses are for does not see them at all.
    assert (await gateway.post(Format.RESPONSES, key=key, model=ALPHA)).status == 404
    await gateway.operations.update_key(token.id, models=("beta-*",))
    assert await models(gateway, key) == [BETA]
    assert (
        await read_error(await gateway.post(Format.RESPONSES, key=key, model=ALPHA))
    ).status == 403


async def test_a_keys_models_are_among_those_of_its_group(
    gateway: RunningGateway,
) -> None:
    await gateway.operations.create_group("beta", ("beta-*",))
    _, key = await gateway.operations.create_key("all", "beta", models=("*",))
    assert await models(gateway, key) == [BETA]
    assert (await gateway.post(Format.CHAT, key=key, model=ALPHA)).status == 503


@pytest.mark.parametrize("format", Format)
async def test_addresses(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    upstream.respond_with(fixture_reply(format))
    token, key = await gateway.operations.create_key("here", "default", addresses=("127.0.0.0/8",))
    assert (await gateway.post(format, key=key)).status == 200
    await gateway.operations.update_key(token.id, addresses=("10.0.0.0/8", "::1/128"))
    # There is no trusted proxy, so the header of the client is ignored.
    for claims in ({}, {"x-forwarded-for": "10.0.0.1"}, {"forwarded": "for=10.0.0.1"}):
        answer = await gateway.post(format, key=key, headers=claims)
        message = "This key is not allowed from this address"
        assert await read_error(answer) == expected_error(
            format, 403, DENIED, message, "permission_denied"
        )
    assert len(upstream.requests) == 1
    row = (await gateway.rows(4))[-1]
    assert (row.state, row.status, row.client_address) == (
        ExchangeState.REJECTED,
        403,
        "127.0.0.1",
    )
    assert (await gateway.operations.get_key(token.id)).changed is None, (
        "a rejected client is no new origin"
    )


@pytest.mark.parametrize(
    ("forwarded", "address", "passes"),
    [
        (CLIENT_ADDRESS, CLIENT_ADDRESS, True),
        (f"::ffff:{CLIENT_ADDRESS}", f"::ffff:{CLIENT_ADDRESS}", True),
        ("2001:db8::7", "2001:db8::7", True),
        (f"192.0.2.1, {CLIENT_ADDRESS}", CLIENT_ADDRESS, True),
        (f"{CLIENT_ADDRESS}, 127.0.0.9", CLIENT_ADDRESS, True),
        (f"{CLIENT_ADDRESS}, 10.0.0.1, ::1", "10.0.0.1", False),
        (f"{CLIENT_ADDRESS}, 192.0.2.1", "192.0.2.1", False),
        (f"{CLIENT_ADDRESS}, nonsense", "nonsense", False),
        ("2001:db8:1::7", "2001:db8:1::7", False),
        ("", "127.0.0.1", False),
        ("127.0.0.5", "127.0.0.5", False),
    ],
)
async def test_behind_a_trusted_proxy_the_last_untrusted_hop_counts(
    upstream: ScriptedUpstream, tmp_path: Path, forwarded: str, address: str, passes: bool
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    server = {"trusted_proxies": ["127.0.0.0/8", "::1/128"]}
    async with run_gateway(tmp_path, channels(upstream.address), server=server) as gateway:
        lists = (f"{CLIENT_ADDRESS}/32", "2001:db8::/64")
        _, key = await gateway.operations.create_key("away", "default", addresses=lists)
        headers = {"x-forwarded-for": forwarded} if forwarded else {}
        answer = await gateway.post(Format.CHAT, key=key, headers=headers)
        row = await gateway.row()
    assert (answer.status, row.client_address) == (200 if passes else 403, address)


async def test_of_several_headers_the_last_hop_counts(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    server = {"trusted_proxies": ["127.0.0.1/32"]}
    async with run_gateway(tmp_path, channels(upstream.address), server=server) as gateway:
        async with gateway.http.get(
            "/v1/models",
            headers=[
                ("x-api-key", gateway.key),
                ("x-forwarded-for", "192.0.2.1"),
                ("x-forwarded-for", CLIENT_ADDRESS),
            ],
        ) as answer:
            assert answer.status == 200
        assert (await gateway.row()).client_address == CLIENT_ADDRESS


async def test_over_ipv6(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    server = {"host": "::1"}
    async with run_gateway(tmp_path, channels(upstream.address), server=server) as gateway:
        _, key = await gateway.operations.create_key("six", "default", addresses=("::1/128",))
        assert (await gateway.get("/v1/models", key)).status == 200
        assert (await gateway.row()).client_address == "::1"
        _, other = await gateway.operations.create_key(
            "four", "default", addresses=("127.0.0.1/32",)
        )
        assert (await gateway.get("/v1/models", other)).status == 403


LISTS: dict[str, Any] = {
    "gateway": {"user_agents": {"allow": ["tool/", "re:^editor-[a-z]+/[23]\\."]}},
    "group": {},
    "key": {},
}


@pytest.mark.parametrize("whose", LISTS)
async def test_user_agents(upstream: ScriptedUpstream, tmp_path: Path, whose: str) -> None:
    upstream.respond_with(fixture_reply("chat"))
    async with run_gateway(tmp_path, channels(upstream.address), **LISTS[whose]) as gateway:
        listed = ("tool/", "re:^editor-[a-z]+/[23]\\.")
        if whose == "group":
            await gateway.operations.update_group("default", user_agents=listed)
        if whose == "key":
            await gateway.operations.update_key(gateway.token.id, user_agents=listed)
        for agent in ("tool/1", "tool/", "editor-x/2.0 (linux)"):
            answer = await gateway.post(Format.CHAT, headers={"user-agent": agent})
            assert answer.status == 200, agent
        seen = len(upstream.requests)
        for agent in ("Tool/1", "my tool/1", "editor-x/4.0", "editor-/2.0", ""):
            answer = await gateway.post(Format.CHAT, headers={"user-agent": agent})
            assert await read_error(answer) == NOT_ALLOWED, agent
        assert (await gateway.get("/v1/models")).status == 400
        assert len(upstream.requests) == seen
        row = (await gateway.rows(9))[-2]
    assert (row.state, row.status) == (ExchangeState.REJECTED, 400)
    assert row.error_code == "user_agent_not_allowed"
    owner = {"gateway": "the gateway", "group": "group default", "key": "the key"}[whose]
    assert row.error_message == (f"user agent not allowed (user agent not on the list of {owner})")
    assert row.upstream_error is None


@pytest.mark.parametrize("format", Format)
async def test_the_error_for_a_user_agent_in_each_format(
    gateway: RunningGateway, format: Format
) -> None:
    await gateway.operations.update_key(gateway.token.id, user_agents=("tool/",))
    answer = await gateway.post(format, headers={"user-agent": "other/1"}, stream=True)
    types = ("invalid_request_error", "invalid_request_error")
    assert await read_error(answer) == expected_error(
        format, 400, types, "user agent not allowed", "user_agent_not_allowed"
    )


async def test_a_list_that_is_not_enforced(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(fixture_reply("chat"))
    watching = {"user_agents": {"mode": "observe", "allow": ["tool/", "other/"]}}
    async with run_gateway(tmp_path, channels(upstream.address), **watching) as gateway:
        await gateway.operations.update_group(
            "default", user_agents=("tool/",), user_agent_mode=UserAgentMode.OBSERVE
        )
        for agent in ("tool/1", "other/1", "third/1"):
            answer = await gateway.post(Format.CHAT, headers={"user-agent": agent})
            assert answer.status == 200
        tool, other, third = await gateway.rows(3)
        assert tool.notes is None
        assert other.notes is not None
        assert other.notes.startswith("user agent not on the list of group default")
        assert third.notes is not None
        assert third.notes.startswith("user agent not on the list of ")
        await gateway.operations.update_group("default", user_agent_mode=UserAgentMode.ENFORCE)
        answer = await gateway.post(Format.CHAT, headers={"user-agent": "third/1"})
        assert await read_error(answer) == NOT_ALLOWED


async def test_lists_apply_from_the_next_request(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat"))
    headers = {"user-agent": "tool/1"}
    for changes, status in (
        ({"user_agents": ("other/",)}, 400),
        ({"user_agents": ("tool/",)}, 200),
        ({"addresses": ("10.0.0.0/8",)}, 403),
        ({"addresses": None}, 200),
        ({"models": ("alpha-*",)}, 403),
        ({"models": None}, 200),
        ({"probe": True}, 403),
        ({"probe": False}, 200),
    ):
        await gateway.operations.update_key(gateway.token.id, **changes)
        answer = await gateway.post(Format.CHAT, headers=headers)
        assert answer.status == status, changes
