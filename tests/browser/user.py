"""A user with a browser, and the complaints of the browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from playwright.async_api import Browser, ConsoleMessage, Dialog, Page, StorageState

from tests.support.gateway import RunningGateway

PASSWORD: Final = "correct horse battery"

TIMEOUT: Final = 15_000.0
"""Milliseconds for every wait in a browser."""

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

    async def sign_in(self, password: str = PASSWORD, name: str | None = None) -> None:
        """Without a name, with the one that the page begins with."""
        await self.page.goto("/console/sign-in")
        if name is not None:
            await self.page.fill("#username", name)
        await self.page.fill("#password", password)
        await self.page.get_by_role("button", name="Sign in").click()

    def excuse(self, text: str) -> None:
        """Removes an expected complaint."""
        expected = [complaint for complaint in self.complaints if text in complaint]
        assert expected, f"no complaint has {text}: {self.complaints}"
        self.complaints.remove(expected[0])

    async def violations(self) -> list[str]:
        """Violations of the content security policy; empty without JavaScript."""
        return list(await self.page.evaluate("window.violations ?? []"))

    async def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        return int(await self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))


@asynccontextmanager
async def open_user(
    browser: Browser,
    gateway: RunningGateway,
    cookies: StorageState | None = None,
    **options: Any,
) -> AsyncIterator[User]:
    """With an own browser context, to which `options` belong."""
    options = {"viewport": {"width": 1280, "height": 800}} | options
    context = await browser.new_context(base_url=gateway.address, storage_state=cookies, **options)
    context.set_default_timeout(TIMEOUT)
    await context.add_init_script(_REPORT_VIOLATIONS)
    user = User(await context.new_page())

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            user.complaints.append(f"{message.type}: {message.text}")

    async def on_dialog(dialog: Dialog) -> None:
        user.complaints.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

    user.page.on("console", on_console)
    user.page.on("pageerror", lambda error: user.complaints.append(f"script: {error}"))
    user.page.on("dialog", on_dialog)
    try:
        yield user
    finally:
        await context.close()


@asynccontextmanager
async def signed_in(
    browser: Browser, gateway: RunningGateway, cookies: StorageState, **options: Any
) -> AsyncIterator[User]:
    """A user with the cookies of a session; no complaints are left at the end."""
    async with open_user(browser, gateway, cookies, **options) as user:
        yield user
        assert user.complaints == []


async def sign_in_once(browser: Browser, gateway: RunningGateway) -> StorageState:
    """Sets the password and signs in; returns the cookies."""
    await gateway.daemon.console.access.admins.set_password(PASSWORD)
    async with open_user(browser, gateway) as user:
        await user.sign_in()
        await user.page.wait_for_url("**/console")
        return await user.page.context.storage_state()
