"""The desk over HTTP: JSON in, JSON out, under whatever path the application is mounted.

It must not know where it is served, nor who may ask. Refusals are `{"error": {"message", "code"}}`,
those of a form with its `mistakes` too: the `path` of a field and a `message` each.
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
from gateway.admin.errors import (
    AdminError,
    ExpiryPassed,
    GroupExists,
    GroupInUse,
    ImportRejected,
    KeyRevoked,
    ReloadUnavailable,
    TooManySubscribers,
    UnknownAccount,
    UnknownGroup,
    UnknownKey,
    UnknownModel,
    UnknownRequest,
)
from gateway.admin.export import export_header, export_rows
from gateway.admin.forms import (
    ExportForm,
    FieldError,
    FormError,
    LogPageForm,
    OverviewForm,
    UsageForm,
    validate,
)
from gateway.admin.key_forms import (
    CreateGroupForm,
    CreateKeyForm,
    ImportKeysForm,
    RotateKeyForm,
    UpdateGroupForm,
    UpdateKeyForm,
    validate_import,
)
from gateway.admin.operations import AdminOperations
from gateway.config import ConfigError
from gateway.store.errors import QueryTimeout, StoreError
from gateway.store.records import RequestRow, Token

if TYPE_CHECKING:  # a command that stands in for the gateway needs nothing of what reloads
    from gateway.admin.reload import Reloader

log = logging.getLogger(__name__)

OPERATIONS = web.AppKey("desk", AdminOperations)
RELOADER: web.AppKey[Reloader] = web.AppKey("reloader")

_STATUSES: dict[type[AdminError], int] = {
    UnknownKey: 404,
    UnknownRequest: 404,
    UnknownGroup: 404,
    UnknownAccount: 404,
    UnknownModel: 404,
    GroupExists: 409,
    GroupInUse: 409,
    ReloadUnavailable: 409,
    KeyRevoked: 409,
    ExpiryPassed: 400,
    TooManySubscribers: 503,
}

_HOUR_US = 3_600_000_000
_DIGESTS = {"digest", "old_digest"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_admin_app(
    operations: AdminOperations, reloader: Reloader | None = None
) -> web.Application:
    """The admin application over a desk; without a reloader there is nothing to reload."""
    app = web.Application(middlewares=[_error_middleware])
    app[OPERATIONS] = operations
    if reloader is not None:
        app[RELOADER] = reloader
    app.router.add_get("", show_version)
    app.router.add_get("/keys", list_keys)
    app.router.add_post("/keys", create_key)
    app.router.add_post("/keys/import", import_keys)
    app.router.add_get("/keys/{id}", show_key)
    app.router.add_patch("/keys/{id}", update_key)
    app.router.add_post("/keys/{id}/rotate", rotate_key)
    app.router.add_delete("/keys/{id}", revoke_key)
    app.router.add_get("/groups", list_groups)
    app.router.add_post("/groups", create_group)
    app.router.add_get("/groups/{name}", show_group)
    app.router.add_patch("/groups/{name}", update_group)
    app.router.add_delete("/groups/{name}", delete_group)
    app.router.add_get("/usage", show_usage)
    app.router.add_get("/check", check_integrity)
    app.router.add_post("/reload", reload)
    app.router.add_get("/overview", show_overview)
    app.router.add_get("/requests", list_requests)
    app.router.add_get("/requests/export", export_requests)
    app.router.add_get("/requests/{id}", show_request)
    app.router.add_get("/requests/{id}/attempts", list_attempts)
    return app


async def show_version(_: web.Request) -> web.Response:
    """Who answers: for a client that wants to know whether anybody does."""
    return json_response({"version": __version__, "pid": os.getpid()})


async def list_keys(request: web.Request) -> web.Response:
    return json_response(
        {"keys": [_token(token) for token in await request.app[OPERATIONS].list_keys()]}
    )


async def create_key(request: web.Request) -> web.Response:
    """The token and its key, which no other answer has."""
    form = validate(CreateKeyForm, await read_json(request))
    minted = await request.app[OPERATIONS].create_key(form.name, form.group, **form.settings())
    return json_response(_with_key(*minted), status=201)


async def import_keys(request: web.Request) -> web.Response:
    """All of them with their keys, or `mistakes`: what is wrong, by the number of the key and the
    field. One that is wrong is no error of whoever asked, and nothing is made then."""
    form = validate(ImportKeysForm, await read_json(request))
    wishes, slips = validate_import(form.keys)
    made = []
    try:
        made = await request.app[OPERATIONS].import_keys(
            wishes, dry_run=form.dry_run or bool(slips)
        )
    except ImportRejected as refused:
        slips += refused.row_errors
    if slips:
        slips.sort(key=lambda slip: slip.index)
        return json_response({"ok": False, "mistakes": slips})
    return json_response({"ok": True, "keys": [_with_key(*each) for each in made]})


async def show_key(request: web.Request) -> web.Response:
    return json_response(_token(await request.app[OPERATIONS].get_key(request.match_info["id"])))


async def update_key(request: web.Request) -> web.Response:
    """The token as it is then; a field that is not in the body stays, null clears it."""
    form = validate(UpdateKeyForm, await read_json(request))
    changes = form.changes()
    return json_response(
        _token(await request.app[OPERATIONS].update_key(request.match_info["id"], **changes))
    )


async def rotate_key(request: web.Request) -> web.Response:
    """The token and its new key; the old one stays good until `old_expires_at`."""
    form = validate(RotateKeyForm, await read_json(request))
    rotated = await request.app[OPERATIONS].rotate_key(
        request.match_info["id"], form.overlap_s * 1_000_000
    )
    return json_response(_with_key(*rotated))


async def revoke_key(request: web.Request) -> web.Response:
    """The token, revoked; also where it was revoked before."""
    return json_response(_token(await request.app[OPERATIONS].revoke_key(request.match_info["id"])))


async def list_groups(request: web.Request) -> web.Response:
    return json_response({"groups": request.app[OPERATIONS].list_groups()})


async def create_group(request: web.Request) -> web.Response:
    form = validate(CreateGroupForm, await read_json(request))
    added = await request.app[OPERATIONS].create_group(form.name, form.patterns, **form.settings())
    return json_response(added, status=201)


async def show_group(request: web.Request) -> web.Response:
    return json_response(request.app[OPERATIONS].get_group(request.match_info["name"]))


async def update_group(request: web.Request) -> web.Response:
    """The group as it is then; a field that is not in the body stays, null clears it."""
    form = validate(UpdateGroupForm, await read_json(request))
    name = request.match_info["name"]
    return json_response(
        await request.app[OPERATIONS].update_group(name, form.patterns, **form.settings())
    )


async def delete_group(request: web.Request) -> web.Response:
    await request.app[OPERATIONS].delete_group(request.match_info["name"])
    return web.Response(status=204)


async def show_usage(request: web.Request) -> web.Response:
    """Sums of whole hours; see `UsageForm`."""
    form = validate(UsageForm, dict(request.query))
    rows = await request.app[OPERATIONS].get_usage(
        form.by,
        since=None if form.since is None else form.since // _HOUR_US,
        until=None if form.until is None else form.until // _HOUR_US,
        token_id=form.key,
        group=form.group,
        model=form.model,
    )
    return json_response({"usage": rows})


async def check_integrity(request: web.Request) -> web.Response:
    """What was compared, and what does not agree."""
    report = await request.app[OPERATIONS].check_integrity()
    return json_response({"clean": report.ok, **asdict(report)})


async def reload(request: web.Request) -> web.Response:
    """What came of it, in the form of `gateway check --json`: a file that is wrong changes nothing
    and is no error of whoever asked."""
    if (reloader := request.app.get(RELOADER)) is None:
        raise ReloadUnavailable
    try:
        return json_response({"ok": True, **asdict(await reloader.reload())})
    except ConfigError as found:
        return json_response({"ok": False, "mistakes": found.problems})


async def list_requests(request: web.Request) -> web.Response:
    form = validate(LogPageForm, dict(request.query))
    return json_response({"requests": await request.app[OPERATIONS].list_requests(form.to_page())})


async def export_requests(request: web.Request) -> web.StreamResponse:
    """All rows wanted; whoever leaves ends it. Should the ledger fail in between, the answer
    breaks off, so that nobody takes a part of it for all."""
    form = validate(ExportForm, dict(request.query))
    batches = request.app[OPERATIONS].export_requests(form.to_filter())
    rows: list[RequestRow] = await anext(
        batches, []
    )  # first: what goes wrong before the answer begins is told
    answer = web.StreamResponse(headers=_attachment(f"requests.{form.format}"))
    answer.content_type = form.format.content_type
    await answer.prepare(request)
    await answer.write(export_header(form.format))
    try:
        while rows:
            await answer.write(export_rows(form.format, map(asdict, rows)))
            rows = await anext(batches, [])
    except StoreError as error:
        log.warning("admin: an export broke off: %s", error)
        if request.transport is not None:
            request.transport.abort()
        return answer
    await answer.write_eof()
    return answer


async def show_overview(request: web.Request) -> web.Response:
    form = validate(OverviewForm, dict(request.query))
    return json_response(await request.app[OPERATIONS].get_overview(form.since, form.until))


async def show_request(request: web.Request) -> web.Response:
    return json_response(await request.app[OPERATIONS].get_request(request.match_info["id"]))


async def list_attempts(request: web.Request) -> web.Response:
    attempts = await request.app[OPERATIONS].list_attempts(request.match_info["id"])
    return json_response({"attempts": [attempted._asdict() for attempted in attempts]})


@web.middleware
async def _error_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except FormError as error:
        mistakes = [{"path": each.path, "message": each.message} for each in error.field_errors]
        return _error_response(400, "invalid_request", str(error), mistakes=mistakes)
    except AdminError as error:
        return _error_response(_STATUSES[type(error)], error.code, str(error))
    except QueryTimeout as error:
        return _error_response(400, "too_much_to_read", str(error))
    except StoreError as error:
        return _error_response(409, "refused", str(error))
    except web.HTTPException as error:
        return _error_response(error.status, error.reason.lower().replace(" ", "_"), error.reason)
    except Exception:  # a fault of ours: scripts get an answer in the usual form
        log.exception("admin: %s %s failed", request.method, request.path)
        return _error_response(
            500, "internal_error", "The gateway failed at this; its process log says why."
        )


async def read_json(request: web.Request) -> Any:
    try:
        return orjson.loads(await request.read())
    except orjson.JSONDecodeError as error:
        raise FormError(FieldError((), f"The body is not valid JSON: {error}")) from None


def _attachment(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{name}"'}


def _token(token: Token) -> dict[str, Any]:
    """The token without its digests: nobody needs them, so nobody gets them."""
    return {name: value for name, value in asdict(token).items() if name not in _DIGESTS}


def _with_key(token: Token, key: str) -> dict[str, Any]:
    return _token(token) | {"key": key}


def _error_response(status: int, code: str, message: str, **more: Any) -> web.Response:
    return json_response({"error": {"message": message, "code": code} | more}, status=status)


def json_response(content: Any, *, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(content), status=status, content_type="application/json")
