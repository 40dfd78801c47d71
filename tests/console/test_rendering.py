"""Filters and escaping of templates."""

from __future__ import annotations

from html import escape

import pytest
from jinja2 import UndefinedError

from gateway.config.limits import Money
from gateway.console.rendering import environment, format_age, format_time
from gateway.core.limits import Cost
from tests.console.browser import Browser
from tests.support.gateway import RunningGateway

HOSTILE = "<img onerror=x> \x1b[31m \u202e \r & \"'"


def render_text(template: str, money: Money | None = None, **values: object) -> str:
    return environment().from_string(template).render(money=money or Money(), **values)


def test_values_are_escaped() -> None:
    for template in ("{{ it }}", '<p title="{{ it }}">', "<pre>{{ it|multiline }}</pre>"):
        text = render_text(template, it=HOSTILE)
        assert "<img" not in text
        assert not set(text) & set("\x1b\u202e\r")
        assert escape("<img onerror=x>") in text
        assert "\\x1b[31m \\u202e \\r" in text


def test_line_breaks_and_tabs_remain() -> None:
    assert render_text("{{ it }}", it="a\r\n\tb\nc") == "a\n\tb\nc"
    assert render_text("{{ it|multiline }}", it="a\r\n\tb\nc") == "a\n\tb\nc"


def test_none_is_empty_and_undefined_is_an_error() -> None:
    assert render_text("[{{ it }}]", it=None) == "[]"
    with pytest.raises(UndefinedError):
        render_text("{{ it }}")


def test_times_are_in_utc() -> None:
    assert format_time(1_700_000_000_999_999) == (
        '<time datetime="2023-11-14T22:13:20Z">2023-11-14 22:13:20 UTC</time>'
    )
    assert render_text("{{ it|time }}", it=1_700_000_000_999_999) == format_time(
        1_700_000_000_999_999
    )
    assert format_time(None) == "–"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (59, "59 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h"), (172_800, "2 d")],
)
def test_ages_have_the_exact_time_as_their_title(seconds: int, text: str) -> None:
    at = 1_700_000_000_000_000
    assert format_age(at, at + seconds * 1_000_000) == (
        '<time data-age datetime="2023-11-14T22:13:20Z" title="2023-11-14 22:13:20 UTC">'
        f"{text}</time>"
    )


@pytest.mark.parametrize(
    ("template", "value", "text"),
    [
        ("{{ it|count }}", 1234567, "1\u202f234\u202f567"),
        ("{{ it|count }}", None, "–"),
        ("{{ it|duration }}", 850_000, "850 ms"),
        ("{{ it|duration }}", None, "–"),
        ("{{ it|units }}", 1_500_000, "1.5"),
        ("{{ it|cost }}", Cost(1_000_000), "1 unit (2.00 EUR)"),
        ("{{ it|cost }}", Cost(1_000_000, 1_230_000), "1 unit ($1.23)"),
        ("{{ it|usd }}", 12_345, "$0.0123"),
        ("{{ it|amount('usd') }}", 12_345, "$0.012345"),
        ("{{ it|amount('units') }}", 1_000_000, "1 unit"),
        ("{{ it|price }}", 5_000_000, "10.00 EUR"),
    ],
)
def test_filters(template: str, value: int | Cost | None, text: str) -> None:
    money = Money(unit_price=2.0, currency="EUR")
    assert render_text(template, money, it=value) == text


def test_cost_without_a_price() -> None:
    assert render_text("{{ it|cost }}[{{ 1|price }}]", it=Cost(5_000_000)) == "5 units[]"


def test_asset_paths_have_a_hash() -> None:
    text = render_text("{{ asset('style.css') }}")
    assert text.startswith("/console/static/style.css?v=")


async def test_flashes_are_shown_once(gateway: RunningGateway, browser: Browser) -> None:
    (session,) = gateway.daemon.console.access.sessions.active()
    session.flashes.append(HOSTILE)
    page = await (await browser.get("/console/nowhere")).text()
    assert '<p class="flash good" role="status">&lt;img onerror=x&gt; \\x1b' in page
    assert "flash" not in await (await browser.get("/console/nowhere")).text()
