"""The feed on the TCP port: for who is signed in, and as long as they are."""

from __future__ import annotations

import pytest

from gateway.console.sessions import IDLE
from gateway.core.formats import Format
from tests.admin.following import following
from tests.console.browsing import OF_A_FORM, Browser
from tests.console.test_guard import ENDLESS, assert_protected
from tests.house import House
from tests.scripted import ScriptedUpstream, reply

pytestmark = pytest.mark.timeout(30)


async def test_strangers_get_no_event(stranger: Browser) -> None:
    answer = await stranger.get(ENDLESS, **{"Sec-Fetch-Dest": "empty"})
    assert answer.status == 401
    assert (await answer.json())["error"]["code"] == "not_signed_in"


async def test_who_is_signed_in_gets_them(
    house: House, upstream: ScriptedUpstream, browser: Browser
) -> None:
    upstream.play(reply(Format.CHAT))
    async with following(browser.http, ENDLESS) as follower:
        assert_protected(follower.answer.headers, ENDLESS)
        assert (await house.ask(Format.CHAT)).status == 200
        event = await follower.next()
        assert event is not None
        assert event.id == (await house.row()).id


async def test_they_end_with_sign_out(browser: Browser) -> None:
    async with following(browser.http, ENDLESS) as follower:
        assert (await browser.post("/console/sign-out")).status == 303
        assert await follower.next() is None


async def test_they_end_when_the_password_changes(house: House, browser: Browser) -> None:
    async with following(browser.http, ENDLESS) as follower:
        await house.daemon.office.sessions.set_password("another horse battery")
        assert await follower.next() is None


async def test_following_keeps_no_session_alive(house: House, browser: Browser) -> None:
    (session,) = house.daemon.office.sessions.all()
    browser.http.headers.update({"Sec-Fetch-Dest": "empty"})  # as an EventSource sends it
    session.seen_at = seen = house.daemon.runtime.now() - IDLE + 1_500_000
    async with following(browser.http, ENDLESS) as follower:
        assert await follower.next() is None
    assert session.seen_at == seen
    answer = await browser.get("/admin/api/keys", **OF_A_FORM)
    assert answer.status == 401
