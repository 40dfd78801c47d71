"""The pages of admins, and what the pages of each role offer."""

from __future__ import annotations

import pytest

from gateway.store.records import Role
from tests.console.access_api import access_of, audited, session_of
from tests.console.browser import PASSWORD, Browser, open_browser
from tests.console.hostile_text import is_harmless
from tests.console.visitor import Visitor
from tests.support.gateway import RunningGateway

pytestmark = pytest.mark.timeout(60)


async def test_add_change_and_remove(gateway: RunningGateway, visitor: Visitor) -> None:
    page = await visitor.post(
        "/console/admins-new", name="Alice", role="operator", password="the password of alice"
    )
    assert (page.path, "Admin alice added." in page.text) == ("/console/admins", True)
    assert "alice operator" in page.text
    page = await visitor.get("/console/admins/alice")
    assert "the password" not in page.html
    page = await visitor.post("/console/admins/alice", role="viewer", password="")
    assert "alice viewer" in page.text
    admin = access_of(gateway).admins.get("alice")
    await visitor.post("/console/admins/alice", role="viewer", password="another password")
    assert access_of(gateway).admins.get("alice").password_digest != admin.password_digest
    assert "Remove alice?" in (await visitor.get("/console/admins/alice/remove")).text
    page = await visitor.post("/console/admins/alice/remove")
    assert "Admin alice removed." in page.text
    assert (await visitor.get("/console/admins/alice")).status == 404
    actions = [row.action for row in await audited(gateway, target="alice")]
    assert actions == ["admin.add", "admin.set", "admin.set", "admin.remove"]
    assert "password of" not in repr(await audited(gateway))


async def test_invalid_input_is_explained_and_a_password_is_not_repeated(visitor: Visitor) -> None:
    for name, role, password, text in (
        ("", "viewer", PASSWORD, "Must have 1 to 64 letters"),
        ("a b", "viewer", PASSWORD, "Must have 1 to 64 letters"),
        ("alice", "root", PASSWORD, "Input should be 'viewer', 'operator' or 'admin'"),
        ("alice", "viewer", "a short one", "at least 12 characters"),
        ("admin", "viewer", PASSWORD, "Admin admin already exists."),
    ):
        page = await visitor.post("/console/admins-new", name=name, role=role, password=password)
        assert (page.status, text in page.text) == (422, True), (name, page.text)
        assert password not in page.html
    page = await visitor.post("/console/admins/admin", role="viewer")
    assert (page.status, "add another one first" in page.text) == (422, True)
    assert "last admin" in (await visitor.post("/console/admins/admin/remove")).text


async def test_tokens_are_shown_once(gateway: RunningGateway, visitor: Visitor) -> None:
    page = await visitor.post(
        "/console/admin-tokens/new", name="ci", scope="keys", expires_at="30d"
    )
    secret = page.inside("token")
    assert secret is not None
    token = access_of(gateway).tokens.find(secret)
    assert token is not None
    assert (token.name, token.scope, token.created_by) == ("ci", "keys", "admin: admin")
    page = await visitor.get("/console/admins")
    assert (secret in page.html, token.display in page.html) == (False, True)
    for name, expires, text in (
        ("ci", "30d", "revoke it first"),
        ("x", "yesterday", "xpire"),
        ("", "", "at least 1 character"),
        ("x", "2020-01-01", "must be in the future"),
    ):
        page = await visitor.post(
            "/console/admin-tokens/new", name=name, scope="keys", expires_at=expires
        )
        assert (page.status, text in page.text) == (422, True), (name, expires, page.text)
    assert "Revoke ci?" in (await visitor.get(f"/console/admin-tokens/{token.id}/revoke")).text
    page = await visitor.post(f"/console/admin-tokens/{token.id}/revoke")
    assert "There are no tokens." in page.text
    assert access_of(gateway).tokens.find(secret) is None


OFFERED = {
    "/console/tokens": "New key",
    "/console/tokens/{key}": "Rotate",
    "/console/groups": "New group",
    "/console/groups/default": "Edit",
    "/console/channels": "Disable",
}


@pytest.mark.parametrize("role", Role)
async def test_pages_offer_what_the_role_may_do(gateway: RunningGateway, role: Role) -> None:
    cookie = await session_of(gateway, role)
    async with open_browser(gateway, cookie=cookie) as browser:
        for path, text in OFFERED.items():
            page = await browser.page(path.format(key=gateway.token.id))
            assert (f">{text}<" in page) is (role is not Role.VIEWER), path
            assert f">{role}" in page
            assert ('href="/console/admins"' in page) is (role is Role.ADMIN)
        denied = await browser.get("/console/audit")
        assert denied.status == (200 if role is Role.ADMIN else 403)
        if role is not Role.ADMIN:
            assert f"administer, which admin: {role} does not have." in await denied.text()


async def test_a_role_change_takes_effect_on_the_next_request(
    gateway: RunningGateway, anonymous: Browser
) -> None:
    admins = access_of(gateway).admins
    await admins.add("bob", Role.ADMIN, PASSWORD)
    assert (await anonymous.sign_in(username="bob")).status == 303
    assert (await anonymous.get("/console/admins")).status == 200
    await admins.update("bob", role=Role.VIEWER)
    assert (await anonymous.get("/console/admins")).status == 303
    assert (await anonymous.sign_in(username="bob")).status == 303
    assert (await anonymous.get("/console/admins")).status == 403
    await admins.remove("bob")
    assert (await anonymous.get("/console")).status == 303
    assert (await anonymous.sign_in(username="bob")).status == 403


async def test_texts_of_others_are_harmless(gateway: RunningGateway, visitor: Visitor) -> None:
    """A browser's name, a token's name."""
    hostile = "<script>alert(1)</script>\u202e"
    await access_of(gateway).sessions.sign_in("admin", PASSWORD, "127.0.0.1", hostile)
    page = await visitor.post(
        "/console/admin-tokens/new", name="<img src=x onerror=alert(1)>", scope="read"
    )
    for html in (page.html, (await visitor.get("/console/audit")).html):
        assert is_harmless(html)
        assert "alert(1)" in html
