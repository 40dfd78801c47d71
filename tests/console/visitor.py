"""Somebody who is signed in, with a browser that runs no scripts.

It must not know what a page is about.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import unescape

from aiohttp import ClientSession, CookieJar

from tests.support.gateway import RunningGateway

PASSWORD = "correct horse battery"


@dataclass(frozen=True, slots=True)
class VisitedPage:
    """A page as it arrived; `path` is where redirects have led to."""

    status: int
    path: str
    html: str

    @property
    def text(self) -> str:
        """What a person reads, in one line."""
        text = re.sub(r"<(style|script|title)\b.*?</\1>", " ", self.html, flags=re.S)
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())

    def inside(self, id: str) -> str | None:
        """The text of the element with that id, which has no others in it."""
        found = re.search(rf'<\w+ [^>]*\bid="{re.escape(id)}"[^>]*>([^<]*)<', self.html)
        return unescape(found[1]) if found else None

    def value(self, name: str) -> str | None:
        """What the input of that name has in it."""
        found = re.search(rf'<input id="{name}" name="{name}"[^>]* value="([^"]*)"', self.html)
        if found is None:
            found = re.search(rf'<textarea id="{name}"[^>]*>\n?([^<]*)<', self.html)
        return unescape(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class Visitor:
    http: ClientSession

    async def get(self, path: str) -> VisitedPage:
        async with self.http.get(path) as answer:
            return VisitedPage(answer.status, answer.url.path, await answer.text())

    async def post(self, path: str, **fields: str) -> VisitedPage:
        """What the form's page leads to."""
        headers = {"Sec-Fetch-Site": "same-origin"}
        async with self.http.post(path, data=fields, headers=headers) as answer:
            return VisitedPage(answer.status, answer.url.path, await answer.text())


@asynccontextmanager
async def signed_in_visitor(gateway: RunningGateway) -> AsyncIterator[Visitor]:
    await gateway.daemon.console.sessions.set_password(PASSWORD)
    jar = CookieJar(unsafe=True)  # it would not keep the cookies of an address
    async with ClientSession(gateway.address, cookie_jar=jar) as http:
        visitor = Visitor(http)
        shown = await visitor.post("/console/sign-in", password=PASSWORD, next="/console/tokens")
        assert shown.path == "/console/tokens"
        yield visitor
