"""The page of the audit log."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web

from gateway.admin.access.permissions import Permission, requires
from gateway.admin.api.access import audit_json
from gateway.admin.audit_words import changes_in_words
from gateway.admin.units import parse_time
from gateway.console.context import CONTEXT
from gateway.console.rendering import render
from gateway.store import audit
from gateway.store.audit import AuditFilter
from gateway.store.records import AuditRow

LIST_PATH: Final = "/console/audit"

_PAGE_SIZE: Final = 50
_INPUTS: Final = ("who", "what", "target", "since")

routes = web.RouteTableDef()


@routes.get("/audit")
@requires(Permission.ADMINISTER)
async def list_actions(request: web.Request) -> web.Response:
    context = request.app[CONTEXT]
    texts = {name: text for name in _INPUTS if (text := request.query.get(name, "").strip())}
    errors: dict[str, str] = {}
    since = None
    try:
        since = parse_time(texts["since"], context.now(), -1) if "since" in texts else None
    except ValueError as error:
        errors["since"] = str(error)
    matching = AuditFilter(texts.get("who"), texts.get("what"), texts.get("target"), since)
    before = request.query.get("before") or None
    database = context.operations.database
    rows = await audit.page(database, matching, limit=_PAGE_SIZE, before=before)
    older = urlencode({**texts, "before": rows[-1].id}) if len(rows) == _PAGE_SIZE else None
    return render(
        request,
        "audit.html",
        status=400 if errors else 200,
        texts=texts,
        errors=errors,
        rows=[] if errors else list(map(_row, rows)),
        older=None if older is None else f"{LIST_PATH}?{older}",
        is_newest=before is None,
    )


def _row(row: AuditRow) -> dict[str, Any]:
    fields = audit_json(row)
    return fields | {"changes": list(changes_in_words(fields["before"], fields["after"]))}
