"""JSON of the admin API: forms of requests, responses, errors as `{"error": {message, code}}`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import orjson
from aiohttp import web

from gateway.admin.api.forms import F, validate
from gateway.admin.errors import AdminError, FieldError, FormError
from gateway.store.errors import DatabaseUnavailable, QueryTimeout, StoreError, TooManyRows

log = logging.getLogger(__name__)

_AT_ONCE: Final = 200
"""Items of a list that are written before other tasks of the loop run."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def read_form(request: web.Request, form: type[F]) -> F:
    """The body as a form. Raises FormError."""
    try:
        content = orjson.loads(await request.read())
    except orjson.JSONDecodeError as error:
        raise FormError(FieldError((), f"The body is not valid JSON: {error}")) from None
    return validate(form, content)


def read_query(request: web.Request, form: type[F]) -> F:
    """Raises FormError."""
    return validate(form, dict(request.query))


def json_response(content: Any, *, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(content), status=status, content_type="application/json")


async def list_response(name: str, items: Iterable[Any], **others: Any) -> web.Response:
    """An object with the items, of which there may be many: they are made here, in steps. `others`
    are its other fields."""
    written = []
    for item in items:
        written.append(orjson.dumps(item))
        if not len(written) % _AT_ONCE:
            await asyncio.sleep(0)
    end = orjson.dumps(others)[1:] if others else b"}"
    body = b'{"%b":[%b]%b%b' % (name.encode(), b",".join(written), b"," if others else b"", end)
    return web.Response(body=body, content_type="application/json")


@web.middleware
async def error_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except AdminError as error:
        return _error_response(error.status, error.code, str(error), **error.details)
    except (QueryTimeout, TooManyRows) as error:
        return _error_response(400, "too_much_to_read", str(error))
    except DatabaseUnavailable as error:
        log.error("admin: %s %s failed: %s", request.method, request.path, error)
        return _error_response(503, "database_unavailable", str(error))
    except StoreError as error:
        return _error_response(409, "refused", str(error))
    except web.HTTPException as error:
        return _error_response(error.status, error.reason.lower().replace(" ", "_"), error.reason)
    except Exception:  # an internal error has the usual form too
        log.exception("admin: %s %s failed", request.method, request.path)
        text = "Internal error; the gateway's process log has the details."
        return _error_response(500, "internal_error", text)


def _error_response(status: int, code: str, message: str, **details: Any) -> web.Response:
    return json_response({"error": {"message": message, "code": code} | details}, status=status)
