"""Every link of every page leads somewhere, for everyone who sees it."""

from __future__ import annotations

import re
from collections import Counter, deque
from html import unescape
from urllib.parse import urldefrag

import pytest

from gateway.core.formats import Format
from gateway.store.log.pages import first_id
from gateway.store.records import Role
from tests.console.access_api import ask, session_of
from tests.store.sample_rows import intent, settled
from tests.support.gateway import BETA, RunningGateway
from tests.support.upstream import ScriptedUpstream, fixture_reply, json_response

MOST_QUERIES = 15
"""Of one page: filters add to each other, so that there is no end of them."""

_LINK = re.compile(r'<(?:a|img|link|script)\b[^>]*? (?:href|src)="([^"]*)"')


@pytest.mark.slow("follows every link of the console")
@pytest.mark.parametrize("role", [Role.ADMIN, Role.OPERATOR, Role.VIEWER])
async def test_every_link(gateway: RunningGateway, upstream: ScriptedUpstream, role: Role) -> None:
    await gateway.operations.create_group("a.b-c_d", ("*",))
    upstream.respond_with(fixture_reply(Format.RESPONSES))
    reply = await (await gateway.post(Format.RESPONSES)).json()
    await gateway.post(Format.RESPONSES, previous_response_id=reply["id"])
    upstream.respond_with(json_response({"error": {"message": "broken"}}, 500))
    await gateway.post(Format.CHAT, model=BETA)
    await gateway.post(Format.CHAT, model="no/such model&more")
    await gateway.rows(4)
    await gateway.daemon.runtime.responses.flush()
    broken = await broken_links(gateway, await session_of(gateway, role))
    assert not broken


async def test_a_request_of_a_key_that_is_gone(gateway: RunningGateway) -> None:
    """Its row outlives a key, as after a restored backup; the link to the key was broken."""
    now = gateway.daemon.console.now()
    for number, id in enumerate((gateway.token.id, "tok_gone")):
        row = intent(number, id, started_at=now)._replace(id=f"{first_id(now)}{number:010x}")
        gateway.daemon.runtime.recorder.record_settlement(settled(row))
    cookie = {"cookie": await session_of(gateway, Role.ADMIN)}
    known, gone = await gateway.rows(2)
    for row in (known, gone):
        page = await (await ask(gateway, "GET", f"/console/logs/{row.id}", headers=cookie)).text()
        assert (f'href="/console/tokens/{row.token_id}"' in page) == (row is known)
        assert f"({row.token_id})" in page or row is gone


async def broken_links(gateway: RunningGateway, session: str) -> dict[str, str]:
    """The links, each with the page that has it, that lead to an error or to no element."""
    found = {"/console": "the start"}
    pages: dict[str, str] = {}
    broken: dict[str, str] = {}
    waiting = deque(found)
    queries: Counter[str] = Counter()
    while waiting:
        link = waiting.popleft()
        path, fragment = urldefrag(link)
        if path not in pages:
            answer = await ask(gateway, "GET", path, headers={"cookie": session})
            pages[path] = await answer.text()
            if answer.status != 200:
                broken[link] = f"{answer.status} from {found[link]}"
            elif answer.content_type == "text/html":
                for target in map(unescape, _LINK.findall(pages[path])):
                    target = f"{path}{target}" if target.startswith("#") else target
                    queries[page := target.partition("?")[0]] += target not in found
                    if (
                        page.startswith("/")
                        and target not in found
                        and queries[page] <= MOST_QUERIES
                    ):
                        found[target] = path
                        waiting.append(target)
        if fragment and f'id="{fragment}"' not in pages[path]:
            broken[link] = f"no such element, from {found[link]}"
    assert len(pages) > 30
    return broken
