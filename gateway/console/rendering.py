"""Templates and charts as responses. Every value is escaped, unprintable characters included."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web
from markupsafe import Markup, escape

from gateway.admin import units
from gateway.admin.access.permissions import current_actor
from gateway.console import log_row
from gateway.console.charts import BASELINE, HEIGHT, SPARK_HEIGHT, SPARK_WIDTH, TOP, WIDTH
from gateway.console.context import CONTEXT
from gateway.console.guard import SESSION, STATIC
from gateway.console.notices import MOST, NOTICES
from gateway.console.time_range import RangeLinks
from gateway.core.text import escape_unprintable

if TYPE_CHECKING:
    from jinja2 import Environment

PACKAGE_DIR: Final = Path(__file__).parent
PLACEHOLDER: Final = "–"

_AGES: Final = ((172_800, 86_400, "d"), (3_600, 3_600, "h"), (60, 60, "min"), (0, 1, "s"))
"""Seconds from which on an age is in a unit, and those of the unit."""


async def load_templates() -> None:
    """Import Jinja and compile the templates in a thread when the first page is requested: most
    gateways start without anyone at the console, and both would block the loop."""
    if not environment.cache_info().currsize:
        await asyncio.to_thread(environment)


@cache
def environment() -> Environment:
    """Return the compiled templates, one for all gateways of this process."""
    from jinja2 import (
        Environment,
        FileSystemLoader,
        StrictUndefined,
        pass_context,
        pass_environment,
    )
    from jinja2.filters import do_truncate

    templates = Environment(
        loader=FileSystemLoader(PACKAGE_DIR / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters: dict[str, Callable[..., object]] = {
        "time": format_time,
        "age": pass_context(lambda context, at: format_age(at, context["now"])),
        "outcome": log_row.outcome,
        "reason": log_row.reason,
        "speed": log_row.tokens_per_second,
        "refuses_line": units.refuses_line,
        "first_event": lambda milliseconds: (
            units.format_percentile("first_event", milliseconds) or PLACEHOLDER
        ),
        "duration": lambda microseconds: units.format_duration(microseconds) or PLACEHOLDER,
        "count": lambda number: PLACEHOLDER if number is None else units.format_count(number),
        "units": lambda micro: PLACEHOLDER if micro is None else units.format_units(micro),
        "price": pass_context(
            lambda context, micro: units.format_price(micro, context["money"]) or ""
        ),
        "usd": units.format_usd,
        "amount": units.format_amount,
        "cost": pass_context(
            lambda context, cost: units.format_cost(cost.units, cost.usd, context["money"])
        ),
        # A word that is longer is cut: by default it would be left out.
        "truncate": pass_environment(
            lambda templates, text, length: do_truncate(templates, text, length, killwords=True)
        ),
        "multiline": lambda text: escape(_escape_control(text)),
    }
    templates.filters.update(filters)
    templates.globals["asset"] = _asset_paths(PACKAGE_DIR / "static").__getitem__
    plot = {"width": WIDTH, "height": HEIGHT, "top": TOP, "baseline": BASELINE}
    plot |= {"spark_width": SPARK_WIDTH, "spark_height": SPARK_HEIGHT}
    templates.globals["plot"] = plot
    for name in templates.list_templates():
        templates.get_template(name)
    return templates


def render(request: web.Request, name: str, *, status: int = 200, **values: Any) -> web.Response:
    """A page or a part of one. In addition to `values`, templates have `path`, `now` (Unix µs),
    `session` (None without one), `admin`, who signed in, `may(PERMISSION)`, `flashes()`, the
    messages for this page, `notices`, `has_replicas`, `has_file`, `links` of ranges, and `money`,
    the current prices' settings."""
    session = request.get(SESSION)
    context = request.app[CONTEXT]
    access, runtime = context.access, context.runtime

    def pop_flashes() -> Iterator[str]:
        while session is not None and session.flashes:
            yield session.flashes.pop(0)

    text = (
        environment()
        .get_template(name)
        .render(
            path=request.path,
            now=context.now(),
            session=session,
            admin=None if session is None else access.sessions.admin_of(session),
            may=current_actor().may,
            flashes=pop_flashes,
            notices=request.get(NOTICES, ())[:MOST],
            links=RangeLinks(request.path, request.query),
            has_replicas=runtime.fleet.is_replica,
            has_file=request.app[CONTEXT].reloader is not None,
            money=runtime.config.money,
            **values,
        )
    )
    return web.Response(text=text, status=status, content_type="text/html")


def redirect(path: str) -> web.Response:
    """Redirects to a GET of the path, also after a POST."""
    return web.Response(status=303, headers={"Location": path})


def flash(request: web.Request, message: str) -> None:
    """Shows a message on the session's next page."""
    request[SESSION].flashes.append(message)


def stash_once(request: web.Request, name: str, text: str) -> None:
    """Keeps a text such as a new key in memory until `pop_stash`."""
    request[SESSION].one_time_values[name] = text


def pop_stash(request: web.Request, name: str) -> str | None:
    """Returns what was stashed; None the second time."""
    return request[SESSION].one_time_values.pop(name, None)


def format_time(microseconds: int | None) -> str:
    """A `<time>` in UTC, from Unix microseconds."""
    if microseconds is None:
        return PLACEHOLDER
    moment = datetime.fromtimestamp(microseconds // 1_000_000, UTC)
    element = Markup('<time datetime="{:%Y-%m-%dT%H:%M:%SZ}">{:%Y-%m-%d %H:%M:%S} UTC</time>')
    return element.format(moment, moment)


def format_age(microseconds: int, now: int) -> Markup:
    """A `<time>` that says how long ago it was, with the exact time in UTC as its title."""
    moment = datetime.fromtimestamp(microseconds // 1_000_000, UTC)
    seconds = max(0, now - microseconds) // 1_000_000
    scale, unit = next(each[1:] for each in _AGES if seconds >= each[0])
    element = Markup(
        '<time data-age datetime="{0:%Y-%m-%dT%H:%M:%SZ}" title="{0:%Y-%m-%d %H:%M:%S} UTC">'
    )
    return element.format(moment) + f"{seconds // scale} {unit}" + Markup("</time>")


def _finalize(value: Any) -> Any:
    if value is None:
        return ""
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return _escape_control(value) if is_text else value


def _escape_control(text: str) -> str:
    """Line breaks and tabs remain."""
    if text.isprintable():
        return text
    text = text.replace("\r\n", "\n")
    return re.sub(r"[^\n\t]+", lambda match: escape_unprintable(match[0]), text)


def _asset_paths(folder: Path) -> dict[str, str]:
    """File name → path with a hash of the content, so that a cached file is never outdated."""
    return {
        path.name: f"{STATIC}/{path.name}?v={hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"
        for path in sorted(folder.iterdir())
        if path.is_file()
    }
