"""The event feed on the TCP port needs a session and ends with it."""

from __future__ import annotations

import pytest

from gateway.admin.access.sessions import IDLE_TIMEOUT
from gateway.core.formats import Format
from gateway.store.access import touch_session
from tests.admin.feed_client import follow_feed
from tests.console.browser import FORM_HEADERS, Browser
from tests.console.test_guard import ENDLESS, assert_protected
from tests.support.gateway import RunningGateway
from tests.support.upstream import ScriptedUpstream, fixture_reply

pytestmark = pytest.mark.timeout(30)


async def test_no_events_without_a_session(anonymous: Browser) -> None:
    answer = await anonymous.get(ENDLESS, **{"Sec-Fetch-Dest": "empty"})
    assert answer.status == 401
    assert (await answer.json())["error"]["code"] == "not_signed_in"


async def test_events_with_a_session(
    gateway: RunningGateway, upstream: ScriptedUpstream, browser: Browser
) -> None:
    upstream.respond_with(fixture_reply(Format.CHAT))
    async with follow_feed(browser.http, ENDLESS) as follower:
        assert_protected(follower.response.headers, ENDLESS)
        assert (await gateway.post(Format.CHAT)).status == 200
        event = await follower.next()
        assert event is not None
        assert event.id == (await gateway.row()).id


async def test_sign_out_ends_the_feed(browser: Browser) -> None:
    async with follow_feed(browser.http, ENDLESS) as follower:
        assert (await browser.post("/console/sign-out")).status == 303
        assert await follower.next() is None


async def test_a_new_password_ends_the_feed(gateway: RunningGateway, browser: Browser) -> None:
    async with follow_feed(browser.http, ENDLESS) as follower:
        await gateway.daemon.console.access.admins.set_password("another horse battery")
        assert await follower.next() is None


async def test_following_does_not_extend_the_session(
    gateway: RunningGateway, browser: Browser
) -> None:
    (session,) = gateway.daemon.console.access.sessions.active()
    browser.http.headers.update({"Sec-Fetch-Dest": "empty"})  # as an EventSource sends it
    session.seen_at = seen_at_start = gateway.daemon.runtime.now() - IDLE_TIMEOUT + 1_500_000
    await touch_session(gateway.operations.database, session.digest, seen_at_start)
    async with follow_feed(browser.http, ENDLESS) as follower:
        assert await follower.next() is None
    assert session.seen_at == seen_at_start
    answer = await browser.get("/admin/api/keys", **FORM_HEADERS)
    assert answer.status == 401
