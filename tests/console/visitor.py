"""A signed-in user whose browser runs no scripts."""

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
    """`path` is the one after redirects."""

    status: int
    path: str
    html: str

    @property
    def text(self) -> str:
        """The visible text, in one line."""
        text = re.sub(r"<(style|script|title)\b.*?</\1>", " ", self.html, flags=re.S)
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())

    def inside(self, id: str) -> str | None:
        """The text of the element with that id."""
        match = re.search(rf'<\w+ [^>]*\bid="{re.escape(id)}"[^>]*>([^<]*)<', self.html)
        return unescape(match[1]) if match else None

    def value(self, name: str) -> str | None:
        """The value of an input."""
        match = re.search(rf'<input id="{name}" name="{name}"[^>]* value="([^"]*)"', self.html)
        if match is None:
            match = re.search(rf'<textarea id="{name}"[^>]*>\n?([^<]*)<', self.html)
        return unescape(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class Visitor:
    http: ClientSession

    async def get(self, path: str) -> VisitedPage:
        async with self.http.get(path) as answer:
            return VisitedPage(answer.status, answer.url.path, await answer.text())

    async def post(self, path: str, **fields: str) -> VisitedPage:
        """The page after the redirect."""
        headers = {"Sec-Fetch-Site": "same-origin"}
        async with self.http.post(path, data=fields, headers=headers) as answer:
            return VisitedPage(answer.status, answer.url.path, await answer.text())


@asynccontextmanager
async def signed_in_visitor(gateway: RunningGateway) -> AsyncIterator[Visitor]:
    await gateway.daemon.console.access.admins.set_password(PASSWORD)
    jar = CookieJar(unsafe=True)  # it would not keep the cookies of an address
    async with ClientSession(gateway.address, cookie_jar=jar) as http:
        visitor = Visitor(http)
        page = await visitor.post("/console/sign-in", password=PASSWORD, next="/console/tokens")
        assert page.path == "/console/tokens"
        yield visitor
