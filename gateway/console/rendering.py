"""Templates into answers. What others wrote is text, whatever is in it: markup in it is escaped,
and what cannot be seen is spelled out.

It must not know any page.

Drawings as answers. It must not know what is drawn.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web
from markupsafe import Markup, escape

from gateway import __version__
from gateway.admin import units
from gateway.config import Money
from gateway.console.charts import HEIGHT, WIDTH, Chart
from gateway.console.context import ConsoleContext
from gateway.console.guard import SESSION, STATIC
from gateway.core.text import escape_unprintable

if TYPE_CHECKING:
    from jinja2 import Environment


PACKAGE_DIR: Final = Path(__file__).parent
PLACEHOLDER: Final = "–"


class Templates:
    """The templates of an office's pages; `load` them before the first `render`."""

    def __init__(self, office: ConsoleContext) -> None:
        self._office = office
        self._environment: Environment | None = None

    async def load(self) -> None:
        """In a thread: to import the template engine takes longer than the loop may be held up.
        At the start it would delay every request, and no console may ever be opened."""
        if self._environment is None:
            self._environment = await asyncio.to_thread(build_environment, self._office)

    def render(self, name: str, **context: Any) -> str:
        if self._environment is None:
            raise RuntimeError("the templates are not loaded")
        return self._environment.get_template(name).render(**context)


TEMPLATES: Final = web.AppKey("templates", Templates)


def build_environment(office: ConsoleContext) -> Environment:
    """What templates are rendered with; figures that cost something have a price where the
    configuration in force tells one."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(PACKAGE_DIR / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )

    def money() -> Money:
        return office.runtime.config.money

    filters: dict[str, Callable[..., object]] = {
        "when": format_time,
        "lasting": lambda microseconds: units.format_duration(microseconds) or PLACEHOLDER,
        "count": lambda number: PLACEHOLDER if number is None else units.format_count(number),
        "amount": lambda micro: PLACEHOLDER if micro is None else units.format_units(micro),
        "price": lambda micro: units.format_price(micro, money()) or "",
        "units": lambda micro: PLACEHOLDER if micro is None else units.format_cost(micro, money()),
        "lines": keep_lines,
    }
    made.filters.update(filters)
    made.globals |= {"asset": _assets(PACKAGE_DIR / "static").__getitem__, "version": __version__}
    return made


def render(request: web.Request, name: str, *, status: int = 200, **context: Any) -> web.Response:
    """A page, or a part of one. Templates have besides the context: `path`, `session` (None on the
    way in) and `said()`: what was said to whoever is signed in, and is said once."""
    session = request.get(SESSION)

    def said() -> list[tuple[str, str]]:
        if session is None:
            return []
        words = list(session.flashes)
        session.flashes.clear()
        return words

    text = request.app[TEMPLATES].render(
        name, path=request.path, session=session, said=said, **context
    )
    return web.Response(text=text, status=status, content_type="text/html")


def redirect(path: str) -> web.Response:
    """Leads to a page by GET: what a form's POST ends with."""
    return web.Response(status=303, headers={"Location": path})


def flash(request: web.Request, words: str, tone: str = "good") -> None:
    """Words for the next page, once; the tone is `good` or `bad`."""
    request[SESSION].flashes.append((words, tone))


def stash_once(request: web.Request, name: str, text: str) -> None:
    """Something that may be looked at once, such as a new key; it is in memory alone until then."""
    request[SESSION].one_time_values[name] = text


def pop_stash(request: web.Request, name: str) -> str | None:
    """What was handed under that name; None the second time."""
    return request[SESSION].one_time_values.pop(name, None)


def format_time(microseconds: int | None) -> str:
    """A time of the ledger, in UTC."""
    if microseconds is None:
        return PLACEHOLDER
    moment = datetime.fromtimestamp(microseconds // 1_000_000, UTC)
    told = Markup('<time datetime="{:%Y-%m-%dT%H:%M:%SZ}">{:%Y-%m-%d %H:%M:%S} UTC</time>')
    return told.format(moment, moment)


def keep_lines(text: str) -> Markup:
    """A text of several lines, for where blanks and line breaks count."""
    return escape(_escape_control(text))


def _finalize(value: Any) -> Any:
    if value is None:
        return ""
    return (
        _escape_control(value)
        if isinstance(value, str) and not isinstance(value, Markup)
        else value
    )


def _escape_control(text: str) -> str:
    return "\n".join(
        "\t".join(escape_unprintable(part) for part in line.split("\t"))
        for line in text.replace("\r\n", "\n").split("\n")
    )


def _assets(folder: Path) -> dict[str, str]:
    """File name → address, which changes with the content: what is kept for a week may be wrong
    no sooner."""
    return {
        path.name: f"{STATIC}/{path.name}?v={hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"
        for path in sorted(folder.iterdir())
        if path.is_file()
    }


_CHART_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""A chart is a document with a style sheet of its own."""


def render_chart(request: web.Request, chart: Chart) -> web.Response:
    """The chart as an SVG, for an `<img>`."""
    image = request.app[TEMPLATES].render("chart.svg", chart=chart, width=WIDTH, height=HEIGHT)
    headers = {"Content-Security-Policy": _CHART_POLICY}
    return web.Response(text=image, content_type="image/svg+xml", headers=headers)
