"""An HTTP client that behaves as a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientResponse, ClientSession, CookieJar

from tests.support.gateway import RunningGateway

PASSWORD = "correct horse battery"

FORM_HEADERS = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate"}
"""Headers that browsers send with a form of the console."""


@dataclass(slots=True)
class Browser:
    """Keeps cookies and follows no redirects. Responses are read."""

    http: ClientSession
    headers: dict[str, str] = field(default_factory=dict)

    async def get(self, path: str, **headers: str) -> ClientResponse:
        return await self.ask("GET", path, headers)

    async def post(self, path: str, form: Mapping[str, Any] | None = None) -> ClientResponse:
        """Sends a form of the console. A repeated field is a list."""
        fields = [
            (name, str(item))
            for name, value in (form or {}).items()
            for item in (value if isinstance(value, list | tuple) else (value,))
        ]
        return await self.ask("POST", path, FORM_HEADERS, data=fields)

    async def page(self, path: str) -> str:
        """The text of a page, which has to exist."""
        answer = await self.get(path)
        assert answer.status == 200, await answer.text()
        return await answer.text()

    async def submit(self, path: str, form: Mapping[str, Any] | None = None) -> str:
        """Sends a form and returns the text of the page that it redirects to."""
        answer = await self.post(path, form)
        assert answer.status == 303, await answer.text()
        return await self.page(answer.headers["location"])

    async def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, **more: Any
    ) -> ClientResponse:
        answer = await self.http.request(
            method, path, headers=self.headers | dict(headers or {}), allow_redirects=False, **more
        )
        await answer.read()
        return answer

    async def sign_in(self, password: str = PASSWORD, **fields: str) -> ClientResponse:
        return await self.post("/console/sign-in", {"password": password} | fields)


@asynccontextmanager
async def open_browser(gateway: RunningGateway, **headers: str) -> AsyncIterator[Browser]:
    """A browser that is not signed in."""
    jar = CookieJar(unsafe=True)  # an address is a host too
    async with ClientSession(gateway.address, cookie_jar=jar) as http:
        yield Browser(http, headers)
