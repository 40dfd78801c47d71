"""The page of the audit log."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

import orjson
from aiohttp import web

from gateway.admin.access.permissions import Permission, requires
from gateway.admin.api.access import audit_json
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
    """`changes` are texts such as `state: active → disabled`."""
    fields = audit_json(row)
    before, after = fields["before"] or {}, fields["after"] or {}
    changes = [
        f"{name}: {' → '.join(_text(each[name]) for each in (before, after) if name in each)}"
        for name in {**before, **after}
    ]
    return fields | {"changes": changes}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
