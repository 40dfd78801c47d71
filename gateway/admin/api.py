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
from gateway.admin.desk import Desk
from gateway.admin.exports import head, lines
from gateway.admin.forms import (
    ExportForm,
    FormError,
    Mistake,
    OverviewForm,
    PageForm,
    UsageForm,
    fill,
)
from gateway.admin.group_forms import GroupChange, GroupForm
from gateway.admin.key_forms import ChangeForm, ImportForm, MintForm, RotateForm, read_keys
from gateway.admin.refusals import (
    DeskError,
    ExpiryPassed,
    GroupExists,
    GroupInUse,
    ImportRefused,
    KeyRevoked,
    NothingToReload,
    TooManySubscribers,
    UnknownAccount,
    UnknownGroup,
    UnknownKey,
    UnknownModel,
    UnknownRequest,
)
from gateway.config import ConfigMistakes
from gateway.store.errors import StoreError, TooMuchToRead
from gateway.store.records import RequestRow, Token

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
    KeyRevoked: 409,
    ExpiryPassed: 400,
    TooManySubscribers: 503,
}

_HOUR_US = 3_600_000_000
_DIGESTS = {"digest", "old_digest"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_admin(desk: Desk, reloader: Reloader | None = None) -> web.Application:
    """The admin application over a desk; without a reloader there is nothing to reload."""
    app = web.Application(middlewares=[_refusals])
    app[DESK] = desk
    if reloader is not None:
        app[RELOADER] = reloader
    app.router.add_get("", hello)
    app.router.add_get("/keys", list_keys)
    app.router.add_post("/keys", mint_key)
    app.router.add_post("/keys/import", import_keys)
    app.router.add_get("/keys/{id}", show_key)
    app.router.add_patch("/keys/{id}", change_key)
    app.router.add_post("/keys/{id}/rotate", rotate_key)
    app.router.add_delete("/keys/{id}", revoke_key)
    app.router.add_get("/groups", list_groups)
    app.router.add_post("/groups", add_group)
    app.router.add_get("/groups/{name}", show_group)
    app.router.add_patch("/groups/{name}", change_group)
    app.router.add_delete("/groups/{name}", remove_group)
    app.router.add_get("/usage", show_usage)
    app.router.add_get("/check", check)
    app.router.add_post("/reload", reload)
    app.router.add_get("/overview", show_overview)
    app.router.add_get("/requests", list_requests)
    app.router.add_get("/requests/export", export_requests)
    app.router.add_get("/requests/{id}", show_request)
    app.router.add_get("/requests/{id}/attempts", list_attempts)
    return app


async def hello(_: web.Request) -> web.Response:
    """Who answers: for a client that wants to know whether anybody does."""
    return _answer({"version": __version__, "pid": os.getpid()})


async def list_keys(request: web.Request) -> web.Response:
    return _answer({"keys": [_token(token) for token in await request.app[DESK].keys()]})


async def mint_key(request: web.Request) -> web.Response:
    """The token and its key, which no other answer has."""
    form = fill(MintForm, await _body(request))
    minted = await request.app[DESK].mint_key(form.name, form.group, **form.terms())
    return _answer(_with_key(*minted), status=201)


async def import_keys(request: web.Request) -> web.Response:
    """All of them with their keys, or `mistakes`: what is wrong, by the number of the key and the
    field. One that is wrong is no error of whoever asked, and nothing is made then."""
    form = fill(ImportForm, await _body(request))
    wishes, slips = read_keys(form.keys)
    made = []
    try:
        made = await request.app[DESK].import_keys(wishes, dry_run=form.dry_run or bool(slips))
    except ImportRefused as refused:
        slips += refused.slips
    if slips:
        slips.sort(key=lambda slip: slip.index)
        return _answer({"ok": False, "mistakes": slips})
    return _answer({"ok": True, "keys": [_with_key(*each) for each in made]})


async def show_key(request: web.Request) -> web.Response:
    return _answer(_token(await request.app[DESK].key(request.match_info["id"])))


async def change_key(request: web.Request) -> web.Response:
    """The token as it is then; a field that is not in the body stays, null clears it."""
    form = fill(ChangeForm, await _body(request))
    changes = form.changes()
    return _answer(_token(await request.app[DESK].change_key(request.match_info["id"], **changes)))


async def rotate_key(request: web.Request) -> web.Response:
    """The token and its new key; the old one stays good until `old_expires_at`."""
    form = fill(RotateForm, await _body(request))
    rotated = await request.app[DESK].rotate_key(
        request.match_info["id"], form.overlap_s * 1_000_000
    )
    return _answer(_with_key(*rotated))


async def revoke_key(request: web.Request) -> web.Response:
    """The token, revoked; also where it was revoked before."""
    return _answer(_token(await request.app[DESK].revoke_key(request.match_info["id"])))


async def list_groups(request: web.Request) -> web.Response:
    return _answer({"groups": request.app[DESK].groups()})


async def add_group(request: web.Request) -> web.Response:
    form = fill(GroupForm, await _body(request))
    added = await request.app[DESK].add_group(form.name, form.patterns, **form.terms())
    return _answer(added, status=201)


async def show_group(request: web.Request) -> web.Response:
    return _answer(request.app[DESK].group(request.match_info["name"]))


async def change_group(request: web.Request) -> web.Response:
    """The group as it is then; a field that is not in the body stays, null clears it."""
    form = fill(GroupChange, await _body(request))
    name = request.match_info["name"]
    return _answer(await request.app[DESK].set_group(name, form.patterns, **form.terms()))


async def remove_group(request: web.Request) -> web.Response:
    await request.app[DESK].remove_group(request.match_info["name"])
    return web.Response(status=204)


async def show_usage(request: web.Request) -> web.Response:
    """Sums of whole hours; see `UsageForm`."""
    form = fill(UsageForm, dict(request.query))
    rows = await request.app[DESK].usage(
        form.by,
        since=None if form.since is None else form.since // _HOUR_US,
        until=None if form.until is None else form.until // _HOUR_US,
        token_id=form.key,
        group=form.group,
        model=form.model,
    )
    return _answer({"usage": rows})


async def check(request: web.Request) -> web.Response:
    """What was compared, and what does not agree."""
    report = await request.app[DESK].check()
    return _answer({"clean": report.clean, **asdict(report)})


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


async def export_requests(request: web.Request) -> web.StreamResponse:
    """All rows wanted; whoever leaves ends it. Should the ledger fail in between, the answer
    breaks off, so that nobody takes a part of it for all."""
    form = fill(ExportForm, dict(request.query))
    batches = request.app[DESK].export(form.wanted())
    rows: list[RequestRow] = await anext(
        batches, []
    )  # first: what goes wrong before the answer begins is told
    answer = web.StreamResponse(headers=_attachment(f"requests.{form.format}"))
    answer.content_type = form.format.content_type
    await answer.prepare(request)
    await answer.write(head(form.format))
    try:
        while rows:
            await answer.write(lines(form.format, map(asdict, rows)))
            rows = await anext(batches, [])
    except StoreError as error:
        log.warning("admin: an export broke off: %s", error)
        if request.transport is not None:
            request.transport.abort()
        return answer
    await answer.write_eof()
    return answer


async def show_overview(request: web.Request) -> web.Response:
    form = fill(OverviewForm, dict(request.query))
    return _answer(await request.app[DESK].overview(form.since, form.until))


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
        mistakes = [{"path": each.path, "message": each.message} for each in error.mistakes]
        return _refusal(400, "invalid_request", str(error), mistakes=mistakes)
    except DeskError as error:
        return _refusal(_STATUSES[type(error)], error.code, str(error))
    except TooMuchToRead as error:
        return _refusal(400, "too_much_to_read", str(error))
    except StoreError as error:
        return _refusal(409, "refused", str(error))
    except web.HTTPException as error:
        return _refusal(error.status, error.reason.lower().replace(" ", "_"), error.reason)
    except Exception:  # a fault of ours: scripts get an answer in the usual form
        log.exception("admin: %s %s failed", request.method, request.path)
        return _refusal(
            500, "internal_error", "The gateway failed at this; its process log says why."
        )


async def _body(request: web.Request) -> Any:
    try:
        return orjson.loads(await request.read())
    except orjson.JSONDecodeError as error:
        raise FormError(Mistake((), f"The body is not valid JSON: {error}")) from None


def _attachment(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{name}"'}


def _token(token: Token) -> dict[str, Any]:
    """The token without its digests: nobody needs them, so nobody gets them."""
    return {name: value for name, value in asdict(token).items() if name not in _DIGESTS}


def _with_key(token: Token, key: str) -> dict[str, Any]:
    return _token(token) | {"key": key}


def _refusal(status: int, code: str, message: str, **more: Any) -> web.Response:
    return _answer({"error": {"message": message, "code": code} | more}, status=status)


def _answer(content: Any, *, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(content), status=status, content_type="application/json")
