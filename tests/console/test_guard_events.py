"""The feed on the TCP port: for who is signed in, and as long as they are."""

from __future__ import annotations

import pytest

from gateway.admin.sessions import IDLE_TIMEOUT
from gateway.core.formats import Format
from tests.admin.feed_client import follow_feed
from tests.console.browser import FORM_HEADERS, Browser
from tests.console.test_guard import ENDLESS, assert_protected
from tests.support.gateway import RunningGateway
from tests.support.upstream import ScriptedUpstream, fixture_reply

pytestmark = pytest.mark.timeout(30)


async def test_strangers_get_no_event(stranger: Browser) -> None:
    answer = await stranger.get(ENDLESS, **{"Sec-Fetch-Dest": "empty"})
    assert answer.status == 401
    assert (await answer.json())["error"]["code"] == "not_signed_in"


async def test_who_is_signed_in_gets_them(
    gateway: RunningGateway, upstream: ScriptedUpstream, browser: Browser
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    async with follow_feed(browser.http, ENDLESS) as follower:
        assert_protected(follower.response.headers, ENDLESS)
        assert (await gateway.post(Format.CHAT)).status == 200
        event = await follower.next()
        assert event is not None
        assert event.id == (await gateway.row()).id


async def test_they_end_with_sign_out(browser: Browser) -> None:
    async with follow_feed(browser.http, ENDLESS) as follower:
        assert (await browser.post("/console/sign-out")).status == 303
        assert await follower.next() is None


async def test_they_end_when_the_password_changes(
    gateway: RunningGateway, browser: Browser
) -> None:
    async with follow_feed(browser.http, ENDLESS) as follower:
        await gateway.daemon.console.sessions.set_password("another horse battery")
        assert await follower.next() is None


async def test_following_keeps_no_session_alive(gateway: RunningGateway, browser: Browser) -> None:
    (session,) = gateway.daemon.console.sessions.active()
    browser.http.headers.update({"Sec-Fetch-Dest": "empty"})  # as an EventSource sends it
    session.seen_at = seen = gateway.daemon.runtime.now() - IDLE_TIMEOUT + 1_500_000
    async with follow_feed(browser.http, ENDLESS) as follower:
        assert await follower.next() is None
    assert session.seen_at == seen
    answer = await browser.get("/admin/api/keys", **FORM_HEADERS)
    assert answer.status == 401
