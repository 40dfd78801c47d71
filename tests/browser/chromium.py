"""Debian's Chromium, driven by Playwright: nothing is downloaded, and it stays on loopback."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from playwright.async_api import Browser, async_playwright

REQUIRE_VARIABLE: Final = "GATEWAY_REQUIRE_BROWSER"
"""The variable that makes a missing browser a failure, where it is 1."""

FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)

_NAMES = ("chromium", "chromium-browser")


def find_chromium() -> str | None:
    """The path of the program."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def is_required() -> bool:
    return os.environ.get(REQUIRE_VARIABLE) == "1"


@asynccontextmanager
async def launch(program: str) -> AsyncIterator[Browser]:
    """The browser, for the length of the block."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            await browser.close()
