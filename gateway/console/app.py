"""Builds the applications of the console: the pages, and the admin API for signed-in browsers."""

from __future__ import annotations

import logging
from typing import Final
from urllib.parse import quote

import orjson
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from gateway.admin.access.audit import audit_actions
from gateway.admin.api.access import add_access_routes
from gateway.admin.api.alerts import add_alert_routes
from gateway.admin.api.feed import add_feed_routes
from gateway.admin.api.live import add_live_routes
from gateway.admin.api.replicas import add_replica_routes
from gateway.admin.api.routes import build_admin_app
from gateway.admin.errors import AdminError
from gateway.console.context import ConsoleContext
from gateway.console.guard import SIGN_IN, Guard, add_guard
from gateway.console.login_throttle import LoginThrottle
from gateway.console.notices import add_notices
from gateway.console.pages import PAGES
from gateway.console.pages.signin import THROTTLE
from gateway.console.rejections import INVALID_TOKEN, TOO_MANY_ATTEMPTS, Rejection
from gateway.console.rendering import PACKAGE_DIR, load_templates, redirect, render
from gateway.runtime import unix_microseconds
from gateway.store.errors import DatabaseUnavailable, StoreError

log = logging.getLogger(__name__)

_MESSAGES: Final = {
    404: "This page does not exist.",
    405: "This page does not support the request's method.",
}


def build_console_app(context: ConsoleContext) -> web.Application:
    """The pages, for the path `CONSOLE_PATH`."""
    app = web.Application(middlewares=[_error_middleware, audit_actions(context.access.audit)])
    app[THROTTLE] = LoginThrottle(unix_microseconds)
    for routes in PAGES:
        app.add_routes(routes)
    app.router.add_static("/static", PACKAGE_DIR / "static")
    add_notices(app, context)
    add_guard(app, Guard(context, "application/x-www-form-urlencoded", _reject))
    app.middlewares.insert(0, _load_templates)  # before the guard, which renders pages too
    return app


def build_console_api(context: ConsoleContext) -> web.Application:
    """The admin API for browsers and tokens, without the operations that need access to the
    gateway's machine."""
    app = build_admin_app(context.operations, context.reloader)
    add_live_routes(app, context.runtime, context.accounts)
    add_feed_routes(app, context.feed)
    add_alert_routes(app, context.alerts)
    add_replica_routes(app, context.runtime, context.operations.database)
    add_access_routes(app, context.access)
    add_guard(app, Guard(context, "application/json", _reject_as_json, accepts_tokens=True))
    return app


@web.middleware
async def _load_templates(request: web.Request, handler: Handler) -> web.StreamResponse:
    await load_templates()
    return await handler(request)


@web.middleware
async def _error_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Renders errors as pages."""
    try:
        return await handler(request)
    except AdminError as error:
        return _error_page(request, error.status, str(error))
    except DatabaseUnavailable as error:
        log.error("console: %s %s failed: %s", request.method, request.path, error)
        return _error_page(request, 503, str(error))
    except StoreError as error:
        return _error_page(request, 409, str(error))
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return _error_page(request, error.status, _MESSAGES.get(error.status, error.reason))
    except Exception:  # a bug: logged, and reported to the browser
        log.exception("console: %s %s failed", request.method, request.path)
        return _error_page(request, 500, "Internal error: see the log of the gateway's process.")


def _error_page(request: web.Request, status: int, message: str) -> web.Response:
    return render(request, "error.html", status=status, code=status, message=message)


def _reject(request: web.Request, rejection: Rejection) -> web.StreamResponse:
    """Redirects page views without a session to the sign-in page; scripts and forms get errors."""
    if rejection.status != 401:
        return _error_page(request, rejection.status, rejection.message)
    if request.headers.get("Sec-Fetch-Dest") == "empty":
        return web.Response(status=401)
    if request.method in (hdrs.METH_GET, hdrs.METH_HEAD):
        return redirect(f"{SIGN_IN}?next={quote(request.path_qs, safe='')}")
    return _error_page(request, 403, rejection.message)


def _reject_as_json(request: web.Request, rejection: Rejection) -> web.StreamResponse:
    error = {"message": rejection.message, "code": rejection.code}
    body = orjson.dumps({"error": error})
    headers = {hdrs.WWW_AUTHENTICATE: "Bearer"} if rejection is INVALID_TOKEN else {}
    if rejection is TOO_MANY_ATTEMPTS:
        headers = {hdrs.RETRY_AFTER: "1"}
    return web.Response(
        body=body, status=rejection.status, content_type="application/json", headers=headers
    )
