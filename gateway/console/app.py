"""Puts the console together: pages, what they look like, and the guard before them.

It must not know what a page shows, nor where it is mounted beyond `CONSOLE`.
"""

from __future__ import annotations

import logging
from urllib.parse import quote

import orjson
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from gateway.admin.api import build_admin_app
from gateway.admin.api_feed import add_feed_routes
from gateway.admin.api_live import add_live_routes
from gateway.admin.errors import AdminError
from gateway.console.context import ConsoleContext
from gateway.console.guard import SIGN_IN, add_guard
from gateway.console.pages import PAGES
from gateway.console.rendering import PACKAGE_DIR, TEMPLATES, Templates, redirect, render
from gateway.store.errors import StoreError

log = logging.getLogger(__name__)


def build_console_app(office: ConsoleContext) -> web.Application:
    """The pages, to be mounted under `CONSOLE`."""
    app = web.Application(middlewares=[_errors])
    app[TEMPLATES] = templates = Templates(office)
    for add in PAGES:
        add(app)
    app.router.add_static("/static", PACKAGE_DIR / "static")
    add_guard(app, office, "application/x-www-form-urlencoded", _refuse)
    app.middlewares.insert(0, _loading(templates))  # a refusal is a page too
    return app


def build_console_api(office: ConsoleContext) -> web.Application:
    """The admin API for who is signed in; what only the gateway's own user may do is not in it."""
    app = build_admin_app(office.operations, office.reloader)
    add_live_routes(app, office.runtime, office.accounts)
    add_feed_routes(app, office.feed)
    add_guard(app, office, "application/json", _refuse_in_json)
    return app


def _loading(templates: Templates) -> Middleware:
    @web.middleware
    async def load(request: web.Request, handler: Handler) -> web.StreamResponse:
        await templates.load()
        return await handler(request)

    return load


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Whatever a page cannot do is a page too."""
    try:
        return await handler(request)
    except AdminError as error:
        return _error(request, error.status, str(error))
    except StoreError as error:
        return _error(request, 409, str(error))
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return _error(request, error.status, _WORDS.get(error.status, error.reason))
    except Exception:  # a fault of ours: it is told as one, and the page is a page
        log.exception("console: %s %s failed", request.method, request.path)
        return _error(request, 500, "The gateway failed at this; its process log says why.")


_WORDS = {
    404: "There is no such page.",
    405: "That is not what this page is for.",
}


def _error(request: web.Request, status: int, words: str) -> web.Response:
    return render(request, "error.html", status=status, words=words, code=status)


def _refuse(request: web.Request, status: int, words: str) -> web.StreamResponse:
    """A browser that looks for a page is led to the way in, with the way back in mind; scripts and
    forms are not."""
    if status != 401:
        return _error(request, status, words)
    if request.headers.get("Sec-Fetch-Dest") == "empty":
        return web.Response(status=401)
    if request.method in (hdrs.METH_GET, hdrs.METH_HEAD):
        return redirect(f"{SIGN_IN}?next={quote(request.path_qs, safe='')}")
    return _error(request, 403, words)


_CODES = {
    401: "not_signed_in",
    403: "cross_site",
    408: "request_timeout",
    413: "request_too_large",
    415: "unsupported_media_type",
}


def _refuse_in_json(request: web.Request, status: int, words: str) -> web.StreamResponse:
    body = orjson.dumps({"error": {"message": words, "code": _CODES[status]}})
    return web.Response(body=body, status=status, content_type="application/json")
