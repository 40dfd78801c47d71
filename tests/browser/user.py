"""Somebody at a browser, and everything that the browser complains about meanwhile.

It must not know what a page is for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from playwright.async_api import Browser, ConsoleMessage, Dialog, Page, StorageState

from tests.support.gateway import RunningGateway

PASSWORD: Final = "correct horse battery"

PATIENCE: Final = 15_000.0
"""Milliseconds for whatever is awaited in a browser."""

_REPORT_VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


@dataclass(frozen=True, slots=True)
class User:
    """`complaints` are errors and warnings of the browser's console, failed scripts and dialogs."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    async def sign_in(self, password: str = PASSWORD) -> None:
        await self.page.goto("/console/sign-in")
        await self.page.fill("#password", password)
        await self.page.get_by_role("button", name="Sign in").click()

    def excuse(self, words: str) -> None:
        """A complaint that had to come, which is gone then."""
        expected = [each for each in self.complaints if words in each]
        assert expected, f"nobody complained of {words}: {self.complaints}"
        self.complaints.remove(expected[0])

    async def violations(self) -> list[str]:
        """What the page tried against its content security policy; empty as long as none of its
        scripts may run."""
        return list(await self.page.evaluate("window.violations ?? []"))

    async def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        return int(await self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))


@asynccontextmanager
async def open_user(
    browser: Browser,
    gateway: RunningGateway,
    remembered: StorageState | None = None,
    **options: Any,
) -> AsyncIterator[User]:
    """With a browser profile of their own; `remembered` are the cookies of before, the options
    those of a browser context."""
    options = {"viewport": {"width": 1280, "height": 800}} | options
    context = await browser.new_context(
        base_url=gateway.address, storage_state=remembered, **options
    )
    context.set_default_timeout(PATIENCE)
    await context.add_init_script(_REPORT_VIOLATIONS)
    person = User(await context.new_page())

    def hear(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            person.complaints.append(f"{message.type}: {message.text}")

    async def refuse(dialog: Dialog) -> None:
        person.complaints.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

    person.page.on("console", hear)
    person.page.on("pageerror", lambda error: person.complaints.append(f"script: {error}"))
    person.page.on("dialog", refuse)
    try:
        yield person
    finally:
        await context.close()


@asynccontextmanager
async def signed_in(
    browser: Browser, gateway: RunningGateway, remembered: StorageState, **options: Any
) -> AsyncIterator[User]:
    """Whoever has signed in before, with nothing to complain about at the end."""
    async with open_user(browser, gateway, remembered, **options) as person:
        yield person
        assert person.complaints == []


async def sign_in_once(browser: Browser, gateway: RunningGateway) -> StorageState:
    """Sets the password and signs in; the cookies are good for everybody after."""
    await gateway.daemon.console.sessions.set_password(PASSWORD)
    async with open_user(browser, gateway) as person:
        await person.sign_in()
        await person.page.wait_for_url("**/console")
        return await person.page.context.storage_state()
