"""The page of the audit log."""

from __future__ import annotations

import pytest

from gateway.admin.access.permissions import Actor, acting_as
from tests.console.access_api import access_of
from tests.console.visitor import Visitor
from tests.support.gateway import RunningGateway

pytestmark = pytest.mark.timeout(60)


async def test_actions_are_listed_and_found(gateway: RunningGateway, visitor: Visitor) -> None:
    await visitor.post(f"/console/tokens/{gateway.token.id}/disable")
    page = await visitor.get("/console/audit")
    assert "admin: admin 127.0.0.1 key.update" in page.text
    assert "state from active to disabled" in page.text
    for query, found in (
        ("what=key", True),
        ("what=key.update&since=1h", True),
        ("who=ADMIN:", True),
        ("who=socket", False),
        ("what=group", False),
        (f"target=tests+({gateway.token.id})", True),
        ("target=tests", True),
        (f"target={gateway.token.id}", True),
        ("target=test", False),
    ):
        page = await visitor.get(f"/console/audit?{query}")
        assert (page.status, "key.update" in page.text) == (200, found), query
    page = await visitor.get("/console/audit?since=x")
    assert page.status == 400


async def test_limits_are_in_dollars(gateway: RunningGateway, visitor: Visitor) -> None:
    for dollars in (20, 50):
        limits = {"budget_usd_month": dollars * 1_000_000}
        with acting_as(Actor("admin: alice")):
            await gateway.operations.update_key(gateway.token.id, limits=limits)
    text = (await visitor.get("/console/audit?who=admin:+alice")).text
    assert "monthly budget from $20.00 to $50.00" in text
    assert "monthly budget set to $20.00" in text
    assert "000000" not in text


async def test_older_actions_are_on_further_pages(
    gateway: RunningGateway, visitor: Visitor
) -> None:
    audit = access_of(gateway).audit
    for number in range(120):
        with acting_as(Actor("admin: many")):
            await audit.record("test", f"number {number:03}")
    seen, path = [], "/console/audit?who=many"
    for _ in range(3):
        page = await visitor.get(path)
        seen.append(page.text.count("number "))
        if "Older" in page.text:
            path = page.html.split('rel="next"')[0].rsplit('href="', 1)[1].split('"')[0]
            path = path.replace("&amp;", "&")
    assert seen == [50, 50, 20]
