"""The pages of groups; changes apply from the next request."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.core.formats import Format
from gateway.store.records import UserAgentMode
from tests.console.visitor import Visitor, signed_in_visitor
from tests.support.gateway import ALPHA, BETA, RunningGateway, run_gateway
from tests.support.upstream import ScriptedUpstream, fixture_reply

pytestmark = pytest.mark.timeout(30)


async def test_create_with_every_setting(
    visitor: Visitor, gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    page = await visitor.post(
        "/console/groups-new",
        name="team.1",
        patterns="beta-*\r\nnothing-*",
        multiplier="0.50",
        budget_month="5M",
        requests_per_minute="600",
        user_agents="my agent/",
        user_agent_mode="observe",
    )
    assert page.path == "/console/groups/team.1"
    group = gateway.operations.get_group("team.1")
    assert group.patterns == ("beta-*", "nothing-*")
    assert (group.multiplier, group.user_agent_mode) == ("0.5", UserAgentMode.OBSERVE)
    assert group.limits.budget_month == 5 * 10**12
    assert group.limits.requests_per_minute == 600
    assert "not in the catalog" in page.text
    assert "others are accepted and logged" in page.text
    assert f"{BETA} ," in page.text or f"{BETA} no channel" not in page.text

    created = await visitor.post("/console/tokens/new", name="member", group="team.1")
    key = created.inside("key")
    upstream.respond_with(fixture_reply("chat"))
    assert (await gateway.post(Format.CHAT, key=key)).status == 200
    assert (await gateway.post(Format.MESSAGES, key=key)).status == 503


async def test_a_change_applies_from_the_next_request(
    visitor: Visitor, gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    key = await gateway.key_for_models("beta-*")
    (group,) = [group for group in gateway.operations.list_groups() if group.name != "default"]
    upstream.respond_with(fixture_reply("messages"))
    assert (await gateway.post(Format.MESSAGES, key=key)).status == 503
    path = f"/console/groups/{group.name}"
    form = await visitor.get(f"{path}/edit")
    assert form.value("patterns") == "beta-*"
    page = await visitor.post(
        f"{path}/edit", patterns="family:alpha", multiplier="1", user_agent_mode="enforce"
    )
    assert "the changes apply from the next request" in page.text
    assert ALPHA in page.text
    assert (await gateway.post(Format.MESSAGES, key=key)).status == 200
    same = await visitor.post(
        f"{path}/edit", patterns="family:alpha", multiplier="1", user_agent_mode="enforce"
    )
    assert "Nothing was changed." in same.text


async def test_errors_are_next_to_their_inputs(visitor: Visitor, gateway: RunningGateway) -> None:
    page = await visitor.post(
        "/console/groups-new",
        name="with blanks",
        patterns="a,b family:gamma",
        multiplier="-1",
        user_agent_mode="perhaps",
    )
    assert page.status == 422
    for name in ("name", "patterns", "multiplier", "user_agent_mode"):
        assert page.inside(f"{name}-error")
    assert page.value("multiplier") == "-1"
    taken = await visitor.post("/console/groups-new", name="default", patterns="*", multiplier="1")
    assert taken.status == 422
    assert "Group default already exists." in taken.text
    assert len(gateway.operations.list_groups()) == 1


async def test_only_a_group_without_keys_can_be_removed(
    visitor: Visitor, gateway: RunningGateway
) -> None:
    await gateway.operations.create_group("lonely", ("*",))
    form = await visitor.get("/console/groups/lonely/remove")
    assert "It has no keys" in form.text
    removed = await visitor.post("/console/groups/lonely/remove")
    assert removed.path == "/console/groups"
    assert "Group lonely removed." in removed.text

    form = await visitor.get("/console/groups/default/remove")
    assert "cannot be removed yet" in form.text
    assert (await visitor.post("/console/groups/default/remove")).status == 409
    assert gateway.operations.get_group("default")


async def test_every_valid_name_has_pages(visitor: Visitor, gateway: RunningGateway) -> None:
    for name in ("new", "edit", "Größe", "a.b-c"):
        await gateway.operations.create_group(name, ("*",))
        listed = await visitor.get("/console/groups")
        assert name in listed.text
        for suffix in ("", "/edit", "/remove"):
            assert name in (await visitor.get(f"/console/groups/{name}{suffix}")).text
    assert (await visitor.get("/console/groups/unknown")).status == 404


async def test_models_without_a_channel(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, []) as gateway, signed_in_visitor(gateway) as visitor:
        page = await visitor.get("/console/groups/default")
        assert f"{ALPHA} no channel" in page.text
        assert "none" in (await visitor.get("/console/groups")).text


async def test_storing_can_be_switched_off(
    visitor: Visitor, gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    """A browser sends a checkbox only where it is checked."""
    upstream.respond_with(fixture_reply(Format.RESPONSES))
    form = await visitor.get("/console/groups-new")
    assert '<input type="checkbox" name="store_replies" value="yes" checked>' in form.html
    fields = {"patterns": "*", "multiplier": "1", "user_agent_mode": "enforce"}
    await visitor.post("/console/groups-new", name="stored", store_replies="yes", **fields)
    page = await visitor.post("/console/groups-new", name="unstored", **fields)
    assert "none: nothing is stored" in page.text
    for name in ("stored", "unstored"):
        _, key = await gateway.operations.create_key(name, name)
        answer = await gateway.post(Format.RESPONSES, key=key)
        reply = await answer.json()
        assert reply["store"] is (name == "stored")
        answer = await gateway.post(Format.RESPONSES, key=key, previous_response_id=reply["id"])
        assert answer.status == (200 if name == "stored" else 400)
    page = await visitor.post("/console/groups/unstored/edit", store_replies="yes", **fields)
    assert "unless the client declines" in page.text
    answer = await gateway.post(Format.RESPONSES, key=key)
    assert (await answer.json())["store"] is True
