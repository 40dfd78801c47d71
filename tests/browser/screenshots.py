"""Takes the pictures of docs/screenshots/: `python -m tests.browser.screenshots`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.browser import chromium
from tests.browser.seeded_data import SeededGateway, seeded_gateway
from tests.browser.user import sign_in_once, signed_in

SHOTS: Final = Path(__file__).resolve().parents[2] / "docs" / "screenshots"

WINDOW: Final = {"width": 1280, "height": 800}

LARGEST: Final = 200_000
"""Bytes of a picture."""


def pages(seeded: SeededGateway) -> dict[str, tuple[str, int]]:
    """Name of the picture → path of the page, and the height of the window in pixels."""
    return {
        "overview": ("/console", 1000),
        "keys": ("/console/tokens", 620),
        "logs": ("/console/logs", 900),
        "request": (f"/console/logs/{seeded.failed_over}", 1000),
    }


async def shoot(program: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as state_dir:
        async with (
            chromium.launch(program) as browser,
            seeded_gateway(Path(state_dir)) as seeded,
            signed_in(
                browser,
                seeded.gateway,
                await sign_in_once(browser, seeded.gateway),
                viewport=WINDOW,
            ) as user,
        ):
            for name, (path, height) in pages(seeded).items():
                await user.page.set_viewport_size({"width": WINDOW["width"], "height": height})
                await user.page.goto(path, wait_until="networkidle")
                file = folder / f"{name}.png"
                await user.page.screenshot(path=file)
                size = file.stat().st_size
                print(f"{file.name}: {size} bytes")
                assert size <= LARGEST, f"{file} is larger than {LARGEST} bytes"


def main() -> None:
    program = chromium.find_chromium()
    if program is None:
        sys.exit("There is no chromium (Debian: apt-get install chromium).")
    SHOTS.mkdir(parents=True, exist_ok=True)
    asyncio.run(shoot(program, SHOTS))


if __name__ == "__main__":
    main()
