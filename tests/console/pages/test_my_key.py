"""The pages of who has signed in with a key, and the end of such sessions."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest

from gateway.config.schema import Console
from gateway.core.formats import Format
from gateway.store.records import TokenState
from tests.console.access_api import audited
from tests.console.browser import FORM_HEADERS, PASSWORD, Browser, open_browser
from tests.console.hostile_text import HOSTILE_TEXT, is_harmless
from tests.support.gateway import ALPHA, RunningGateway, channels, run_gateway
from tests.support.upstream import ScriptedUpstream, fixture_reply, json_response

pytestmark = pytest.mark.timeout(30)

REFUSED = "This key cannot sign in from here."


def allow(gateway: RunningGateway, key_holders: str) -> None:
    config = gateway.daemon.runtime.config
    console = Console.model_validate({"key_holders": key_holders})
    gateway.daemon.runtime.replace_config(config.model_copy(update={"console": console}))


async def sign_in(browser: Browser, key: str) -> int:
    return (await browser.post("/console/sign-in/key", {"key": key})).status


@pytest.fixture
async def holder(gateway: RunningGateway) -> AsyncIterator[Browser]:
    async with open_browser(gateway) as browser:
        answer = await browser.post("/console/sign-in/key", {"key": gateway.key})
        assert (answer.status, answer.headers["location"]) == (303, "/console/my")
        cookie = answer.headers["set-cookie"]
        assert gateway.key not in cookie
        assert {"HttpOnly", "Path=/", "SameSite=Strict"} <= set(cookie.split("; "))
        yield browser


async def test_usage_limits_and_errors_of_the_key(
    gateway: RunningGateway, holder: Browser, upstream: ScriptedUpstream
) -> None:
    await gateway.operations.update_key(
        gateway.token.id, limits={"budget_day": 10**13}, note="secret"
    )
    upstream.respond_with(fixture_reply("chat"))
    assert (await gateway.post(Format.CHAT)).status == 200
    assert (await gateway.post(Format.CHAT, {"model": "no-such", "messages": []})).status >= 400
    await gateway.rows(2)
    page = await holder.page("/console/my")
    for text in ("Today", "This month", "Last 30 days", "Daily budget", "unused again at", "<svg"):
        assert text in page
    assert "messages: Input should have at least 1 item" in page
    assert "/console/logs" not in page
    assert "secret" not in page
    assert "/console/tokens" not in page


async def test_nothing_of_others_is_visible(
    gateway: RunningGateway, holder: Browser, upstream: ScriptedUpstream
) -> None:
    other, key = await gateway.operations.create_key("another key", "default")
    upstream.respond_with(json_response({"error": {"message": "internal detail"}}, status=401))
    await gateway.post(Format.CHAT)
    await gateway.post(Format.CHAT, {"model": "of-another", "messages": []}, key=key)
    await gateway.rows(2)
    names = [each.name for each in gateway.daemon.runtime.config.channels]
    for path in ("/console/my", "/console/my/connect", "/console/tokens", "/console/nowhere"):
        answer = await holder.get(path)
        assert answer.status == (200 if path.startswith("/console/my") else answer.status)
        page = await answer.text()
        shown = page.partition("<main")[2]
        for hidden in ("another key", other.id, "of-another", "internal detail", "unhealthy"):
            assert hidden not in shown, (path, hidden)
        assert not [name for name in names if re.search(rf"\b{re.escape(name)}\b", shown)]


async def test_hostile_names_are_text(gateway: RunningGateway, holder: Browser) -> None:
    token = await gateway.operations.get_key(gateway.token.id)
    gateway.daemon.runtime.registry.put_token(replace(token, name=HOSTILE_TEXT))
    await gateway.post(Format.CHAT, {"model": HOSTILE_TEXT, "messages": []})
    await gateway.rows(1)
    page = await holder.page("/console/my")
    assert "alert(2)" in page
    assert is_harmless(page)


@pytest.mark.parametrize("reason", ["unknown", "disabled", "revoked", "expired", "address", "old"])
async def test_keys_that_cannot_sign_in_get_one_sentence(
    gateway: RunningGateway, anonymous: Browser, reason: str
) -> None:
    operations, id_, key = gateway.operations, gateway.token.id, gateway.key
    if reason == "unknown":
        key = "sk-unknown"
    elif reason == "disabled":
        await operations.update_key(id_, state=TokenState.DISABLED)
    elif reason == "revoked":
        await operations.revoke_key(id_)
    elif reason == "expired":
        registry = gateway.daemon.runtime.registry
        registry.put_token(replace(gateway.token, expires_at=1))
    elif reason == "address":
        await operations.update_key(id_, addresses=("192.0.2.0/24",))
    else:
        await operations.rotate_key(id_, 60_000_000)
    answer = await anonymous.post("/console/sign-in/key", {"key": key})
    assert answer.status == 403
    text = await answer.text()
    assert REFUSED in text
    assert key not in text
    (row,) = await audited(gateway, action="sign_in.failed")
    assert row.actor == "unknown"


@pytest.mark.parametrize("end", ["disabled", "revoked", "expired", "rotated", "address", "off"])
async def test_the_session_ends_with_the_key(
    gateway: RunningGateway, holder: Browser, end: str
) -> None:
    operations, id_ = gateway.operations, gateway.token.id
    assert (await holder.get("/console/my")).status == 200
    if end == "disabled":
        await operations.update_key(id_, state=TokenState.DISABLED)
    elif end == "revoked":
        await operations.revoke_key(id_)
    elif end == "expired":
        gateway.daemon.runtime.registry.put_token(replace(gateway.token, expires_at=1))
    elif end == "rotated":
        await operations.rotate_key(id_, 60_000_000)
    elif end == "address":
        await operations.update_key(id_, addresses=("192.0.2.0/24",))
    else:
        allow(gateway, "off")
    for path in ("/console/my", "/console/my/connect"):
        answer = await holder.get(path)
        assert (answer.status, answer.headers["location"][:16]) == (303, "/console/sign-in")


async def test_guesses_are_slowed_down_as_those_of_passwords(
    gateway: RunningGateway, anonymous: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    delays = (0.0, 0.0, 0.0, 0.02)
    monkeypatch.setattr("gateway.console.login_throttle.DELAYS", delays)
    for number in range(4):
        began = monotonic()
        if number % 2:
            assert await sign_in(anonymous, "sk-guess") == 403
        else:
            assert (await anonymous.sign_in("a wrong password")).status == 403
        waited.append(monotonic() - began)
    assert waited[3] >= 0.02


async def test_off_says_nothing_of_keys(gateway: RunningGateway, anonymous: Browser) -> None:
    assert "Sign in with a key" in await anonymous.page("/console/sign-in")
    allow(gateway, "off")
    assert "with a key" not in await anonymous.page("/console/sign-in")
    assert (await anonymous.get("/console/sign-in/key")).headers["location"] == "/console/sign-in"
    assert await sign_in(anonymous, gateway.key) == 303
    assert (await anonymous.get("/console/my")).status == 303


async def test_rotation_is_denied_by_default(gateway: RunningGateway, holder: Browser) -> None:
    assert "Replace this key" not in await holder.page("/console/my")
    for method in ("GET", "POST"):
        assert (await holder.ask(method, "/console/my/rotate", FORM_HEADERS)).status == 403
    token = await gateway.operations.get_key(gateway.token.id)
    assert token.digest == gateway.token.digest


async def test_rotation(
    gateway: RunningGateway, holder: Browser, upstream: ScriptedUpstream
) -> None:
    allow(gateway, "rotate")
    upstream.respond_with(fixture_reply("chat"), fixture_reply("chat"))
    assert "Replace this key" in await holder.page("/console/my")
    assert "24 hours" in await holder.page("/console/my/rotate")
    cross_site = {"Sec-Fetch-Site": "cross-site"}
    assert (await holder.ask("POST", "/console/my/rotate", cross_site)).status == 403
    async with open_browser(gateway) as other:
        assert await sign_in(other, gateway.key) == 303
        page = await holder.submit("/console/my/rotate")
        assert (await other.get("/console/my")).status == 303
    found = re.search(r'id="key">([^<]+)<', page)
    assert found is not None
    key = found[1]
    again = await holder.page("/console/my")
    assert key not in again
    assert "works until" in again
    for each in (key, gateway.key):
        assert (await gateway.post(Format.CHAT, key=each)).status == 200
    (row,) = await audited(gateway, action="key.rotate")
    assert row.actor == f"key: {gateway.token.name} ({gateway.token.id})"
    assert row.address == "127.0.0.1"


async def test_snippets_have_the_models_of_the_key(
    gateway: RunningGateway, holder: Browser
) -> None:
    await gateway.operations.update_key(gateway.token.id, models=(ALPHA,))
    page = await holder.page("/console/my/connect")
    assert ALPHA in page
    assert "YOUR_KEY" in page
    assert gateway.key not in page


async def test_a_holder_signs_out(gateway: RunningGateway, holder: Browser) -> None:
    assert (await holder.get("/console/sign-in")).headers["location"] == "/console/my"
    assert (await holder.post("/console/my/sign-out")).status == 303
    (row,) = await audited(gateway, action="sign_out")
    assert row.actor == f"key: {gateway.token.name} ({gateway.token.id})"
    assert (await holder.get("/console/my")).status == 303


async def test_an_admin_has_no_page_of_a_key_and_keeps_sessions_of_holders(
    gateway: RunningGateway, holder: Browser, anonymous: Browser
) -> None:
    assert (await anonymous.sign_in(next="/console/my")).headers["location"] == "/console"
    assert (await anonymous.get("/console/my")).status == 403
    assert (await holder.get("/console/my")).status == 200
    assert f"key: {gateway.token.id}" in await anonymous.page("/console/admins")


async def test_no_sign_in_without_tls(tmp_path: Path) -> None:
    async with (
        run_gateway(tmp_path, channels("http://127.0.0.1:9")) as gateway,
        open_browser(gateway, host="gateway.example") as browser,
    ):
        await gateway.daemon.console.access.admins.set_password(PASSWORD)
        assert await sign_in(browser, gateway.key) == 403
        assert "<input" not in await browser.page("/console/sign-in/key")
