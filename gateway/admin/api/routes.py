"""The admin API: keys, groups, usage, the request log. Times are Unix microseconds."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from aiohttp import hdrs, web

from gateway import __version__
from gateway.admin.access.audit import audit_actions
from gateway.admin.access.permissions import Permission, requires
from gateway.admin.api.export import LOG_HEAD, export_header, export_rows
from gateway.admin.api.forms import (
    CheckForm,
    ConfigForm,
    ExportForm,
    LogPageForm,
    OverviewForm,
    RefusalsForm,
    TrafficForm,
    UsageForm,
)
from gateway.admin.api.json import (
    error_middleware,
    json_response,
    list_response,
    read_form,
    read_query,
)
from gateway.admin.api.key_forms import (
    CreateGroupForm,
    CreateKeyForm,
    ImportKeysForm,
    RevokeKeyForm,
    RotateKeyForm,
    UpdateGroupForm,
    UpdateKeyForm,
    validate_import,
)
from gateway.admin.api.responses import StoredResponses, add_response_routes
from gateway.admin.errors import ImportRejected, ReloadUnavailable
from gateway.admin.operations import AdminOperations
from gateway.config.document import ConfigError
from gateway.quota.limits import BudgetStatus
from gateway.store.errors import StoreError
from gateway.store.log.links import log_head
from gateway.store.log.refusals import count_refusals
from gateway.store.log.search import export
from gateway.store.log.traffic_report import traffic_report
from gateway.store.log.usage import usage
from gateway.store.records import HOUR_US, RequestRow, Token

if TYPE_CHECKING:  # a command without a gateway does not need what a reload imports
    from gateway.admin.reload import Reloader

log = logging.getLogger(__name__)

_PUBLIC_FIELDS = [each.name for each in fields(Token) if each.name not in ("digest", "old_digest")]


def build_admin_app(
    operations: AdminOperations, reloader: Reloader | None = None
) -> web.Application:
    app = web.Application(middlewares=[error_middleware, audit_actions(operations.audit)])
    app.add_routes(_Handlers(operations, reloader).routes())
    add_response_routes(app, StoredResponses(operations.database, operations.audit))
    return app


class _Handlers:
    def __init__(self, operations: AdminOperations, reloader: Reloader | None) -> None:
        self._operations = operations
        self._reloader = reloader

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("", self.show_version),
            web.get("/keys", self.list_keys),
            web.post("/keys", self.create_key),
            web.post("/keys/import", self.import_keys),
            web.get("/keys/{id}", self.show_key),
            web.patch("/keys/{id}", self.update_key),
            web.post("/keys/{id}/rotate", self.rotate_key),
            web.delete("/keys/{id}", self.revoke_key),
            web.get("/groups", self.list_groups),
            web.post("/groups", self.create_group),
            web.get("/groups/{name}", self.show_group),
            web.patch("/groups/{name}", self.update_group),
            web.delete("/groups/{name}", self.delete_group),
            web.get("/usage", self.show_usage),
            web.get("/traffic", self.show_traffic),
            web.get("/refusals", self.list_refusals),
            web.post("/usage/reprice", self.reprice),
            web.get("/budgets", self.list_budgets),
            web.get("/check", self.check_integrity),
            web.post("/reload", self.reload),
            web.get("/config", self.show_config),
            web.get("/overview", self.show_overview),
            web.get("/requests", self.list_requests),
            web.get("/requests/export", self.export_requests),
            web.get("/requests/head", self.show_log_head),
            web.get("/requests/{id}", self.show_request),
            web.get("/requests/{id}/attempts", self.list_attempts),
            web.get("/requests/{id}/searches", self.list_searches),
        ]

    @requires(Permission.READ)
    async def show_version(self, _: web.Request) -> web.Response:
        """Clients check with it whether a gateway is running."""
        config = None if self._reloader is None else self._reloader.file
        return json_response({"version": __version__, "pid": os.getpid(), "config": config})

    @requires(Permission.READ)
    async def list_keys(self, _: web.Request) -> web.Response:
        tokens = await self._operations.list_keys()
        return await list_response("keys", map(self._token_json, tokens))

    @requires(Permission.KEYS, "key.create")
    async def create_key(self, request: web.Request) -> web.Response:
        form = await read_form(request, CreateKeyForm)
        created = await self._operations.create_key(form.name, form.group, **form.settings())
        return json_response(self._token_json(*created), status=201)

    @requires(Permission.KEYS, "key.import")
    async def import_keys(self, request: web.Request) -> web.Response:
        """Imports keys; the status is 200 also if rows are invalid: then nothing is created and
        `mistakes` lists them."""
        form = await read_form(request, ImportKeysForm)
        keys, errors = validate_import(form.keys)
        created = []
        try:
            dry_run = form.dry_run or bool(errors)
            created = await self._operations.import_keys(keys, dry_run=dry_run)
        except ImportRejected as error:
            errors += error.row_errors
        if errors or form.dry_run:
            self._operations.audit.mark()
        if errors:
            errors.sort(key=lambda each: each.index)
            return json_response({"ok": False, "mistakes": errors})
        return json_response({"ok": True, "keys": [self._token_json(*each) for each in created]})

    @requires(Permission.READ)
    async def show_key(self, request: web.Request) -> web.Response:
        return json_response(
            self._token_json(await self._operations.get_key(request.match_info["id"]))
        )

    @requires(Permission.KEYS, "key.update")
    async def update_key(self, request: web.Request) -> web.Response:
        form = await read_form(request, UpdateKeyForm)
        token = await self._operations.update_key(request.match_info["id"], **form.changes())
        return json_response(self._token_json(token))

    @requires(Permission.KEYS, "key.rotate")
    async def rotate_key(self, request: web.Request) -> web.Response:
        form = await read_form(request, RotateKeyForm)
        id_ = request.match_info["id"]
        rotated = await self._operations.rotate_key(id_, form.overlap_s * 1_000_000)
        return json_response(self._token_json(*rotated))

    @requires(Permission.KEYS, "key.revoke")
    async def revoke_key(self, request: web.Request) -> web.Response:
        form = read_query(request, RevokeKeyForm)
        id_ = request.match_info["id"]
        token = await self._operations.revoke_key(id_, let_run=form.let_run)
        return json_response(self._token_json(token))

    @requires(Permission.READ)
    async def list_groups(self, _: web.Request) -> web.Response:
        return json_response({"groups": self._operations.list_groups()})

    @requires(Permission.KEYS, "group.create")
    async def create_group(self, request: web.Request) -> web.Response:
        form = await read_form(request, CreateGroupForm)
        group = await self._operations.create_group(form.name, form.patterns, **form.settings())
        return json_response(group, status=201)

    @requires(Permission.READ)
    async def show_group(self, request: web.Request) -> web.Response:
        return json_response(self._operations.get_group(request.match_info["name"]))

    @requires(Permission.KEYS, "group.update")
    async def update_group(self, request: web.Request) -> web.Response:
        form = await read_form(request, UpdateGroupForm)
        name = request.match_info["name"]
        return json_response(
            await self._operations.update_group(name, form.patterns, **form.settings())
        )

    @requires(Permission.KEYS, "group.remove")
    async def delete_group(self, request: web.Request) -> web.Response:
        await self._operations.delete_group(request.match_info["name"])
        return web.Response(status=204)

    @requires(Permission.READ)
    async def show_usage(self, request: web.Request) -> web.Response:
        form = read_query(request, UsageForm)
        rows = await usage(
            self._operations.database,
            form.by,
            since=None if form.since is None else form.since // HOUR_US,
            until=None if form.until is None else form.until // HOUR_US,
            token_id=form.key,
            group=form.group,
            model=form.model,
            channel=form.channel,
            stated=form.stated(),
        )
        return json_response({"usage": rows})

    @requires(Permission.READ)
    async def show_traffic(self, request: web.Request) -> web.Response:
        asked = read_query(request, TrafficForm).to_query(self._operations.now())
        report = await traffic_report(self._operations.database, asked)
        return await list_response("traffic", report.rows, complete_since=report.complete_since)

    @requires(Permission.READ)
    async def list_refusals(self, request: web.Request) -> web.Response:
        form = read_query(request, RefusalsForm)
        until = self._operations.now() + 1 if form.until is None else form.until
        counts = await count_refusals(
            self._operations.database, form.since, until, token_id=form.key, limit=form.limit
        )
        return await list_response("refusals", counts)

    @requires(Permission.ADMINISTER, "usage.reprice")
    async def reprice(self, request: web.Request) -> web.Response:
        """Recomputes a part of a span; `after` says where the next call goes on."""
        # Imported here: few commands without a gateway need what reads prices.
        from gateway.admin.repricing import RepriceForm, reprice

        form = await read_form(request, RepriceForm)
        operations = self._operations
        result = await reprice(operations.database, operations.audit, form, operations.now())
        return json_response(asdict(result))

    @requires(Permission.READ)
    async def list_budgets(self, _: web.Request) -> web.Response:
        statuses = await self._operations.list_budgets()
        return await list_response("budgets", map(_budget_json, statuses))

    @requires(Permission.READ)
    async def check_integrity(self, request: web.Request) -> web.Response:
        form = read_query(request, CheckForm)
        report = await self._operations.check_integrity(form.heads)
        return json_response({"clean": report.ok, **asdict(report)})

    @requires(Permission.OPERATE, "config.reload")
    async def reload(self, _: web.Request) -> web.Response:
        """Reloads; the response is that of `gateway check --json`: 200 also if the file is invalid,
        which changes nothing."""
        if self._reloader is None:
            raise ReloadUnavailable
        try:
            return json_response({"ok": True, **asdict(await self._reloader.reload())})
        except ConfigError as error:
            return json_response({"ok": False, "mistakes": error.problems})

    @requires(Permission.ADMINISTER)
    async def show_config(self, request: web.Request) -> web.Response:
        """The active configuration, without secrets."""
        if self._reloader is None:
            raise ReloadUnavailable
        form = read_query(request, ConfigForm)
        return json_response(await asyncio.to_thread(self._reloader.describe, form.all))

    @requires(Permission.READ)
    async def show_overview(self, request: web.Request) -> web.Response:
        form = read_query(request, OverviewForm)
        return json_response(await self._operations.get_overview(form.since, form.until))

    @requires(Permission.READ)
    async def list_requests(self, request: web.Request) -> web.Response:
        form = read_query(request, LogPageForm)
        page = await self._operations.list_requests(
            form.to_filter(), limit=form.limit, before=form.before, after=form.after
        )
        rows = [row._asdict() for row in page.rows]
        return json_response({"requests": rows, "searched_to": page.searched_to})

    @requires(Permission.READ, "logs.export")
    async def export_requests(self, request: web.Request) -> web.StreamResponse:
        """Streams the export. If the database fails midway, the connection is aborted: a part
        cannot be mistaken for the whole."""
        form = read_query(request, ExportForm)
        database = self._operations.database
        head = ",".join(await log_head(database, self._operations.now()))
        batches = export(database, form.to_filter())
        rows: list[RequestRow] = await anext(batches, [])  # before the headers: errors have a form
        disposition = f'attachment; filename="requests.{form.format}"'
        headers = {hdrs.CONTENT_DISPOSITION: disposition, LOG_HEAD: head}
        response = web.StreamResponse(headers=headers)
        response.content_type = form.format.content_type
        await response.prepare(request)
        await response.write(export_header(form.format))
        try:
            await response.write(export_rows(form.format, (row._asdict() for row in rows)))
            async for rows in batches:
                if request.transport is None:  # the client has gone
                    return response
                await response.write(export_rows(form.format, (row._asdict() for row in rows)))
        except StoreError as error:
            log.warning("admin: an export failed: %s", error)
            if request.transport is not None:
                request.transport.abort()
            return response
        await response.write_eof()
        return response

    @requires(Permission.READ)
    async def show_log_head(self, _: web.Request) -> web.Response:
        head = await log_head(self._operations.database, self._operations.now())
        return json_response({"head": head})

    @requires(Permission.READ)
    async def show_request(self, request: web.Request) -> web.Response:
        row = await self._operations.get_request(request.match_info["id"])
        return json_response(row._asdict())

    @requires(Permission.READ)
    async def list_searches(self, request: web.Request) -> web.Response:
        searches = await self._operations.list_searches(request.match_info["id"])
        return json_response({"searches": [search._asdict() for search in searches]})

    @requires(Permission.READ)
    async def list_attempts(self, request: web.Request) -> web.Response:
        attempts = await self._operations.list_attempts(request.match_info["id"])
        return json_response({"attempts": [attempt._asdict() for attempt in attempts]})

    def _token_json(self, token: Token, key: str | None = None) -> dict[str, Any]:
        """Renders a token without the digests; with the key only when it is new."""
        public = {name: getattr(token, name) for name in _PUBLIC_FIELDS}
        public["refused"] = self._operations.refusal(token)
        return public if key is None else public | {"key": key}


def _budget_json(status: BudgetStatus) -> dict[str, Any]:
    """Renders a budget; amounts are in millionths of the currency."""
    kind = status.budget.kind
    return {
        "kind": status.holder.kind,
        "id": status.holder.id,
        "name": status.holder.name,
        "budget": kind.name,
        "currency": kind.currency,
        "window": kind.window,
        "limit": status.budget.limit,
        "spent": status.spent,
        "reserved": status.reserved,
        "resets_at": status.resets_at,
    }
