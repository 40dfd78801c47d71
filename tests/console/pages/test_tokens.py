"""The pages of keys; changes apply from the next request."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from gateway.admin.api.key_forms import ImportedKeyForm
from gateway.core.formats import Format
from gateway.store.records import TokenState
from tests.console.visitor import Visitor
from tests.support.gateway import ALPHA, RunningGateway
from tests.support.upstream import ScriptedUpstream, fixture_reply, json_response

pytestmark = pytest.mark.timeout(30)


async def test_a_new_key_is_shown_once_and_works(
    visitor: Visitor, gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    created = await visitor.post("/console/tokens/new", name="alice", group="default")
    key = created.inside("key")
    assert key is not None
    assert 'data-copy="key"' in created.html

    again = await visitor.get(created.path)
    assert again.inside("key") is None
    assert key not in again.html
    upstream.respond_with(fixture_reply("chat"))
    answer = await gateway.post(Format.CHAT, key=key)
    assert answer.status == 200


async def test_create_with_every_setting(visitor: Visitor, gateway: RunningGateway) -> None:
    created = await visitor.post(
        "/console/tokens/new",
        name="bob",
        group="default",
        note="laptop",
        expires_at="2199-01-31",
        models="beta-*\r\nfamily:alpha",
        addresses="10.0.0.0/8, 127.0.0.1",
        user_agents="curl/\r\nre:my agent, .*",
        trust="end-user tag=x-team",
        requests_per_minute="60",
        tokens_per_minute="200k",
        concurrent="3",
        budget="5M",
        budget_day="0.5",
        budget_month="none",
        budget_usd_day_per_user="2",
        probe="yes",
    )
    token = await gateway.operations.get_key(created.path.rpartition("/")[2])
    assert token.note == "laptop"
    assert token.expires_at == 7229174400_000_000
    assert token.models == ("beta-*", "family:alpha")
    assert token.addresses == ("10.0.0.0/8", "127.0.0.1/32")
    assert token.user_agents == ("curl/", "re:my agent, .*")
    assert token.trust == ("end-user", "tag=x-team")
    assert token.probe
    assert (token.budget_day_per_user, token.budget_usd_day_per_user) == (None, 2_000_000)
    limits = token.limits
    assert (limits.requests_per_minute, limits.tokens_per_minute) == (60, 200_000)
    assert (limits.concurrent, limits.budget) == (3, 5_000_000_000_000)
    assert (limits.budget_day, limits.budget_month) == (500_000, None)
    for text in (
        "2199-01-31",
        "beta-*",
        "10.0.0.0/8",
        "curl/",
        "200",
        "0 % : 0 units of 5",
        "$2.00",
    ):
        assert text.replace(" ", "") in created.text.replace(" ", "").replace("\u202f", "")


async def test_a_budget_of_each_end_user_needs_trust(
    visitor: Visitor, gateway: RunningGateway
) -> None:
    page = await visitor.post(
        "/console/tokens/new", name="bob", group="default", trust="tag", budget_day_per_user="5"
    )
    assert page.status == 422
    assert "This budget needs a key that trusts end-user" in page.text
    assert page.html.count('aria-invalid="true"') == 1
    settings: Any = {"trust": ("end-user",), "budget_day_per_user": 5_000_000}
    token, _ = await gateway.operations.create_key("bob", "default", **settings)
    page = await visitor.post(
        f"/console/tokens/{token.id}/edit", name="bob", group="default", budget_day_per_user="5"
    )
    assert page.status == 422
    assert "This budget needs a key that trusts end-user" in page.text
    await visitor.post(f"/console/tokens/{token.id}/edit", name="bob", group="default")
    changed = await gateway.operations.get_key(token.id)
    assert (changed.trust, changed.budget_day_per_user) == (None, None)


async def test_errors_are_next_to_their_inputs(visitor: Visitor, gateway: RunningGateway) -> None:
    before = len(await gateway.operations.list_keys())
    page = await visitor.post(
        "/console/tokens/new",
        name="  carol  ",
        group="nowhere",
        expires_at="soon",
        addresses="10.1.2.3/8",
        budget="much",
    )
    assert page.status == 422
    assert page.value("name") == "  carol  "
    assert page.value("expires_at") == "soon"
    assert page.value("budget") == "much"
    assert "Must be a date such as 2026-12-31" in page.text
    assert "Number 1: Has an address inside its network" in page.text
    assert "Must be units such as 5M" in page.text
    assert "3 invalid fields" in page.text
    assert page.html.count('aria-invalid="true"') == 3
    assert len(await gateway.operations.list_keys()) == before


@pytest.mark.parametrize(
    ("fields", "name", "text"),
    [
        ({"name": "a", "group": "nowhere"}, "group", "There is no group nowhere"),
        ({"name": "a", "group": "default", "expires_at": "2020-01-01"}, "expires_at", "future"),
        ({"name": "", "group": "default"}, "name", "Field required"),
    ],
)
async def test_errors_of_operations_are_next_to_their_inputs(
    visitor: Visitor, fields: dict[str, str], name: str, text: str
) -> None:
    page = await visitor.post("/console/tokens/new", **fields)
    assert page.status == 422
    assert text in (page.inside(f"{name}-error") or "")


async def test_only_changed_texts_change_the_key(visitor: Visitor, gateway: RunningGateway) -> None:
    token, _ = await gateway.operations.create_key(
        "dora", "default", expires_at=7229174400_123_456, note="keep me", limits={"budget": 7}
    )
    path = f"/console/tokens/{token.id}/edit"
    form = await visitor.get(path)
    fields = {
        name: form.value(name) or ""
        for name in ("name", "note", "expires_at", "models", "addresses", "user_agents", "budget")
    }
    same = await visitor.post(path, **fields, group="default")
    assert "Nothing was changed." in same.text
    assert await gateway.operations.get_key(token.id) == token

    changed = await visitor.post(path, **fields | {"name": "dora 2", "note": ""}, group="default")
    assert "Key dora 2 saved." in changed.text
    now = await gateway.operations.get_key(token.id)
    assert (now.name, now.note) == ("dora 2", None)
    assert (now.expires_at, now.limits) == (token.expires_at, token.limits)


async def test_an_expired_key_can_still_be_renamed(
    visitor: Visitor, gateway: RunningGateway
) -> None:
    token, _ = await gateway.operations.create_key(
        "brief", "default", expires_at=gateway.daemon.console.now() + 60_000
    )
    await asyncio.sleep(0.1)
    assert "expired" in (await visitor.get(f"/console/tokens/{token.id}")).text
    fields = {"group": "default", "expires_at": "", "name": "brief"}
    form = await visitor.get(f"/console/tokens/{token.id}/edit")
    fields["expires_at"] = form.value("expires_at") or ""
    page = await visitor.post(f"/console/tokens/{token.id}/edit", **fields | {"name": "late"})
    assert "Key late saved." in page.text


async def test_disabled_enabled_revoked(
    visitor: Visitor, gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    path = f"/console/tokens/{gateway.token.id}"
    upstream.respond_with(fixture_reply("chat"))

    page = await visitor.post(f"{path}/disable")
    assert "Key tests disabled." in page.text
    assert (await gateway.post(Format.CHAT)).status == 401

    page = await visitor.post(f"{path}/enable")
    assert "Key tests enabled." in page.text
    assert (await gateway.post(Format.CHAT)).status == 200

    form = await visitor.get(f"{path}/revoke")
    assert "This is permanent" in form.text
    assert (await gateway.operations.get_key(gateway.token.id)).state is TokenState.ACTIVE
    page = await visitor.post(f"{path}/revoke")
    assert ") revoked." in page.text
    assert (await gateway.post(Format.CHAT)).status == 401
    assert "Rotate" not in page.text

    listed = await visitor.get("/console/tokens")
    assert gateway.token.id not in listed.html
    assert "Show 1 revoked" in listed.text
    assert gateway.token.id in (await visitor.get("/console/tokens?revoked=")).html
    assert (await visitor.post(f"{path}/enable")).status == 409


async def test_what_a_key_runs_may_end_by_itself(visitor: Visitor, gateway: RunningGateway) -> None:
    path = f"/console/tokens/{gateway.token.id}"
    for end in ("disable", "revoke"):
        assert "let_run" in (await visitor.get(path if end == "disable" else f"{path}/revoke")).html
        for fields in ({"let_run": "yes"}, {}):
            await visitor.post(f"{path}/{end}", **fields)
            token = await gateway.operations.get_key(gateway.token.id)
            assert token.let_run is bool(fields)
        await visitor.post(f"{path}/enable")


async def test_rotation_with_an_overlap(
    visitor: Visitor, gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    path = f"/console/tokens/{gateway.token.id}"
    upstream.respond_with(fixture_reply("chat"))
    invalid = await visitor.post(f"{path}/rotate", overlap="a while")
    assert invalid.status == 422
    assert invalid.value("overlap") == "a while"
    assert "Must be a duration" in invalid.text

    page = await visitor.post(f"{path}/rotate", overlap="1h")
    key = page.inside("key")
    assert key is not None
    assert "works until" in page.text
    for secret in (gateway.key, key):
        assert (await gateway.post(Format.CHAT, key=secret)).status == 200

    ended = (await visitor.post(f"{path}/rotate", overlap="0")).inside("key")
    assert (await gateway.post(Format.CHAT, key=key)).status == 401
    assert (await gateway.post(Format.CHAT, key=ended)).status == 200


async def test_a_new_key_is_not_shown_on_pages_of_other_keys(
    visitor: Visitor, gateway: RunningGateway
) -> None:
    created = await visitor.http.post(
        "/console/tokens/new",
        data={"name": "eve", "group": "default"},
        headers={"Sec-Fetch-Site": "same-origin"},
        allow_redirects=False,
    )
    other = await visitor.get(f"/console/tokens/{gateway.token.id}")
    assert other.inside("key") is None
    assert (await visitor.get(created.headers["location"])).inside("key") is not None


async def test_usage_by_day_and_model_and_budgets(
    visitor: Visitor, gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    await gateway.operations.update_key(
        gateway.token.id, limits={"budget": 10**9, "budget_month": 10**15}
    )
    upstream.respond_with(fixture_reply("messages"))
    await gateway.post(Format.MESSAGES)
    row = await gateway.row()
    assert row.cost_micro

    path = f"/console/tokens/{gateway.token.id}"
    page = await visitor.get(path)
    assert ALPHA in page.text
    assert 'aria-current="true">30 d</a>' in page.html
    percent = row.cost_micro * 100 // 10**9
    assert f'value="{percent}"' in page.html
    assert (await visitor.get("/console/tokens")).text.count("total budget") == 1
    assert '<svg class="plot"' in page.html
    assert page.html.count('class="column"') == 30
    columns = re.findall(r'class="column"[^>]* data-url="([^"]*)"', page.html)
    assert columns and all(f"key={gateway.token.id}" in url for url in columns)
    assert ALPHA in page.html.partition("</svg>")[2].partition("</ul>")[0]
    hours = await visitor.get(f"{path}?since=6h")
    assert hours.html.count('class="column"') == 6
    earlier = await visitor.get(f"{path}?since=2026-01-01&until=2026-01-02")
    assert "No usage in this time." in earlier.text


async def test_hostile_text_is_escaped(
    visitor: Visitor, gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    token, _ = await gateway.operations.create_key(hostile, "default", note=hostile)
    path = f"/console/tokens/{token.id}"
    for suffix in ("", "/edit", "/rotate", "/revoke"):
        page = await visitor.get(path + suffix)
        assert page.status == 200
        assert "<script>alert" not in page.html
        assert "<img src=x" not in page.html
    assert "<script>alert" not in (await visitor.get("/console/tokens")).html


async def test_a_new_client_is_reported(
    visitor: Visitor, gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(json_response({}, status=400))
    for agent in ("curl/8", "agent<b>\u202e/1"):
        await gateway.post(Format.CHAT, headers={"user-agent": agent})
    async with asyncio.timeout(5):
        while not (await gateway.operations.get_key(gateway.token.id)).changed:
            await asyncio.sleep(0.01)
    assert "! new client" in (await visitor.get("/console/tokens")).text
    page = await visitor.get(f"/console/tokens/{gateway.token.id}")
    assert "may have leaked" in page.text
    assert "<b>" not in page.html
    assert "\u202e" not in page.html


@pytest.mark.parametrize("suffix", ["", "/edit", "/rotate", "/revoke"])
async def test_an_unknown_key_has_no_page(visitor: Visitor, suffix: str) -> None:
    page = await visitor.get(f"/console/tokens/tok_unknown{suffix}")
    assert page.status == 404


async def test_pagination_and_search(visitor: Visitor, gateway: RunningGateway) -> None:
    assert 'type="search"' not in (await visitor.get("/console/tokens")).html
    names = [f"key {number:03}" for number in range(150)]
    await gateway.operations.import_keys([ImportedKeyForm(name=name) for name in names])
    first = await visitor.get("/console/tokens")
    assert "key 099" in first.text
    assert "key 100" not in first.text
    assert "Page 1 of 2, 151 keys" in first.text
    for suffix in ("2", "9", "99999999"):
        last = await visitor.get(f"/console/tokens?page={suffix}")
        assert "key 149 sk-" in last.text
        assert "key 099" not in last.text
    for suffix in ("0", "-1", "x", "\u0661", "9" * 5000):
        assert "Page 1 of 2" in (await visitor.get(f"/console/tokens?page={suffix}")).text

    found = await visitor.get("/console/tokens?q=KEY+14")
    assert found.text.count("sk-") == 10
    assert "No keys match." in (await visitor.get("/console/tokens?q=%22%3Cb%3E")).text


async def test_a_key_whose_every_request_is_refused_does_not_look_active(
    visitor: Visitor, gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    """Both looked like keys that work."""
    path = f"/console/tokens/{gateway.token.id}"
    assert "state-active" in (await visitor.get(path)).html
    await gateway.operations.update_key(gateway.token.id, models=("no-such-model",))
    assert "state-no-models" in (await visitor.get(path)).html
    await gateway.operations.update_key(gateway.token.id, models=None, limits={"budget": 10**9})
    upstream.respond_with(fixture_reply("messages"))
    await gateway.post(Format.MESSAGES)
    assert (await gateway.row()).cost_micro
    await gateway.operations.update_key(gateway.token.id, limits={"budget": 1})
    assert "state-budget-used-up" in (await visitor.get(path)).html
    assert "state-budget-used-up" in (await visitor.get("/console/tokens")).html
