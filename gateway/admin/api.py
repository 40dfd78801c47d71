"""The desk over HTTP: JSON in, JSON out, under `/admin/api`.

An application of its own, for the admin socket; it must not know where it is served and is never
part of the application on the TCP port. Refusals are `{"error": {"message", "code"}}`.
Times are Unix microseconds, as in the ledger.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from gateway import __version__
from gateway.admin import ROOT
from gateway.admin.desk import (
    Desk,
    DeskError,
    GroupExists,
    GroupInUse,
    NothingToReload,
    UnknownAccount,
    UnknownGroup,
    UnknownKey,
    UnknownModel,
    UnknownRequest,
)
from gateway.admin.forms import FormError, GroupForm, MintForm, PageForm, PatternsForm, fill
from gateway.config import ConfigMistakes
from gateway.store.errors import StoreError
from gateway.store.records import Token

if TYPE_CHECKING:  # a command that stands in for the gateway needs nothing of what reloads
    from gateway.admin.reload import Reloader

log = logging.getLogger(__name__)

DESK = web.AppKey("desk", Desk)
RELOADER: web.AppKey[Reloader] = web.AppKey("reloader")

_STATUSES: dict[type[DeskError], int] = {
    UnknownKey: 404,
    UnknownRequest: 404,
    UnknownGroup: 404,
    UnknownAccount: 404,
    UnknownModel: 404,
    GroupExists: 409,
    GroupInUse: 409,
    NothingToReload: 409,
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_admin(desk: Desk, reloader: Reloader | None = None) -> web.Application:
    """The admin application over a desk; without a reloader there is nothing to reload."""
    app = web.Application(middlewares=[_refusals])
    app[DESK] = desk
    if reloader is not None:
        app[RELOADER] = reloader
    app.router.add_get(ROOT, hello)
    app.router.add_get(f"{ROOT}/keys", list_keys)
    app.router.add_post(f"{ROOT}/keys", mint_key)
    app.router.add_get(f"{ROOT}/keys/{{id}}", show_key)
    app.router.add_delete(f"{ROOT}/keys/{{id}}", revoke_key)
    app.router.add_get(f"{ROOT}/groups", list_groups)
    app.router.add_post(f"{ROOT}/groups", add_group)
    app.router.add_get(f"{ROOT}/groups/{{name}}", show_group)
    app.router.add_put(f"{ROOT}/groups/{{name}}", set_group)
    app.router.add_delete(f"{ROOT}/groups/{{name}}", remove_group)
    app.router.add_post(f"{ROOT}/reload", reload)
    app.router.add_get(f"{ROOT}/requests", list_requests)
    app.router.add_get(f"{ROOT}/requests/{{id}}", show_request)
    app.router.add_get(f"{ROOT}/requests/{{id}}/attempts", list_attempts)
    return app


async def hello(_: web.Request) -> web.Response:
    """Who answers: for a client that wants to know whether anybody does."""
    return _answer({"version": __version__, "pid": os.getpid()})


async def list_keys(request: web.Request) -> web.Response:
    return _answer({"keys": [_token(token) for token in await request.app[DESK].keys()]})


async def mint_key(request: web.Request) -> web.Response:
    """The one answer that has a key in it."""
    form = fill(MintForm, await _body(request))
    token, key = await request.app[DESK].mint_key(form.name, form.group)
    return _answer(_token(token) | {"key": key}, status=201)


async def show_key(request: web.Request) -> web.Response:
    return _answer(_token(await request.app[DESK].key(request.match_info["id"])))


async def revoke_key(request: web.Request) -> web.Response:
    """The token, revoked; also where it was revoked before."""
    return _answer(_token(await request.app[DESK].revoke_key(request.match_info["id"])))


async def list_groups(request: web.Request) -> web.Response:
    return _answer({"groups": request.app[DESK].groups()})


async def add_group(request: web.Request) -> web.Response:
    form = fill(GroupForm, await _body(request))
    return _answer(await request.app[DESK].add_group(form.name, form.patterns), status=201)


async def show_group(request: web.Request) -> web.Response:
    return _answer(request.app[DESK].group(request.match_info["name"]))


async def set_group(request: web.Request) -> web.Response:
    form = fill(PatternsForm, await _body(request))
    return _answer(await request.app[DESK].set_group(request.match_info["name"], form.patterns))


async def remove_group(request: web.Request) -> web.Response:
    await request.app[DESK].remove_group(request.match_info["name"])
    return web.Response(status=204)


async def reload(request: web.Request) -> web.Response:
    """What came of it, in the form of `gateway check --json`: a file that is wrong changes nothing
    and is no error of whoever asked."""
    if (reloader := request.app.get(RELOADER)) is None:
        raise NothingToReload
    try:
        return _answer({"ok": True, **asdict(await reloader.reload())})
    except ConfigMistakes as found:
        return _answer({"ok": False, "mistakes": found.mistakes})


async def list_requests(request: web.Request) -> web.Response:
    form = fill(PageForm, dict(request.query))
    return _answer({"requests": await request.app[DESK].requests(form.page())})


async def show_request(request: web.Request) -> web.Response:
    return _answer(await request.app[DESK].request(request.match_info["id"]))


async def list_attempts(request: web.Request) -> web.Response:
    attempts = await request.app[DESK].attempts(request.match_info["id"])
    return _answer({"attempts": [attempted._asdict() for attempted in attempts]})


@web.middleware
async def _refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except FormError as error:
        return _refusal(400, "invalid_request", str(error))
    except DeskError as error:
        return _refusal(_STATUSES[type(error)], error.code, str(error))
    except StoreError as error:
        return _refusal(409, "refused", str(error))
    except web.HTTPException as error:
        return _refusal(error.status, error.reason.lower().replace(" ", "_"), error.reason)
    except Exception:
        log.exception("admin: %s %s failed", request.method, request.path)
        return _refusal(
            500, "internal_error", "The gateway failed at this; its process log says why."
        )


async def _body(request: web.Request) -> Any:
    try:
        return orjson.loads(await request.read())
    except orjson.JSONDecodeError as error:
        raise FormError(f"The body is not valid JSON: {error}") from None


def _token(token: Token) -> dict[str, Any]:
    """The token without its digest: nobody needs it, so nobody gets it."""
    return {name: value for name, value in asdict(token).items() if name != "digest"}


def _refusal(status: int, code: str, message: str) -> web.Response:
    return _answer({"error": {"message": message, "code": code}}, status=status)


def _answer(content: Any, *, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(content), status=status, content_type="application/json")
