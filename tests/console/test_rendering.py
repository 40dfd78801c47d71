"""What templates make of values: text stays text, times and figures are as people read them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from html import escape
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from gateway.console.rendering import build_environment, format_time
from tests.console.browser import Browser
from tests.support.gateway import RunningGateway, run_gateway

HOSTILE = "<img onerror=x> \x1b[31m \u202e \r & \"'"


Shown = Callable[..., str]


def showing(gateway: RunningGateway) -> Shown:
    made = build_environment(gateway.daemon.console)
    return lambda template, **values: made.from_string(template).render(**values)


@pytest.fixture
def shown(gateway: RunningGateway) -> Shown:
    """What becomes of a template with some values."""
    return showing(gateway)


@pytest.fixture
async def priced(tmp_path: Path) -> AsyncIterator[Shown]:
    """The same where units have a price."""
    money = {"unit_price": 2.0, "currency": "EUR"}
    async with run_gateway(tmp_path / "priced", [], money=money) as gateway:
        yield showing(gateway)


def test_text_of_others_is_text(shown: Shown) -> None:
    for template in ("{{ it }}", '<p title="{{ it }}">', "<pre>{{ it|multiline }}</pre>"):
        told = shown(template, it=HOSTILE)
        assert "<img" not in told
        assert not set(told) & set("\x1b\u202e\r")
        assert escape("<img onerror=x>") in told
        assert "\\x1b[31m \\u202e \\r" in told


def test_lines_and_blanks_stay(shown: Shown) -> None:
    assert shown("{{ it }}", it="a\r\n\tb\nc") == "a\n\tb\nc"
    assert shown("{{ it|multiline }}", it="a\r\n\tb\nc") == "a\n\tb\nc"


def test_nothing_is_empty_and_what_is_missing_is_a_fault(shown: Shown) -> None:
    assert shown("[{{ it }}]", it=None) == "[]"
    with pytest.raises(UndefinedError):
        shown("{{ it }}")


def test_times_are_of_utc(shown: Shown) -> None:
    assert format_time(1_700_000_000_999_999) == (
        '<time datetime="2023-11-14T22:13:20Z">2023-11-14 22:13:20 UTC</time>'
    )
    assert shown("{{ it|time }}", it=1_700_000_000_999_999) == format_time(1_700_000_000_999_999)
    assert format_time(None) == "–"


@pytest.mark.parametrize(
    ("template", "value", "told"),
    [
        ("{{ it|count }}", 1234567, "1\u202f234\u202f567"),
        ("{{ it|count }}", None, "–"),
        ("{{ it|duration }}", 850_000, "850 ms"),
        ("{{ it|duration }}", None, "–"),
        ("{{ it|units }}", 1_500_000, "1.5"),
        ("{{ it|cost }}", 1_000_000, "1 unit (2.00 EUR)"),
        ("{{ it|price }}", 5_000_000, "10.00 EUR"),
    ],
)
def test_figures(priced: Shown, template: str, value: int | None, told: str) -> None:
    assert priced(template, it=value) == told


def test_without_a_price_units_stand_alone(shown: Shown) -> None:
    assert shown("{{ 5000000|cost }}[{{ 1|price }}]") == "5 units[]"


def test_the_address_of_an_asset_changes_with_it(shown: Shown) -> None:
    told = shown("{{ asset('style.css') }}")
    assert told.startswith("/console/static/style.css?v=")


async def test_what_is_said_is_said_once(gateway: RunningGateway, browser: Browser) -> None:
    (session,) = gateway.daemon.console.sessions.active()
    session.flashes.append(HOSTILE)
    page = await (await browser.get("/console/nowhere")).text()
    assert '<p class="flash good" role="status">&lt;img onerror=x&gt; \\x1b' in page
    assert "flash" not in await (await browser.get("/console/nowhere")).text()
