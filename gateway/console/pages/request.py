"""The page of one request: a summary, a waterfall of its attempts, what it cost, the upstream
errors, a command that repeats it, and every field.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from aiohttp import web

from gateway.admin.access.permissions import Permission, requires
from gateway.admin.api.responses import StoredResponses
from gateway.admin.request_summary import headline, sections
from gateway.admin.units import format_field
from gateway.console.context import CONTEXT
from gateway.console.log_row import curl_command
from gateway.console.rendering import format_time, render
from gateway.console.timeline import ticks, waterfall
from gateway.quota.budgets import format_utc
from gateway.store.records import AttemptRow, ExchangeState, RequestRow

routes = web.RouteTableDef()


@routes.get("/logs/{id:req_[^/]+}")
@requires(Permission.READ)
async def show_request(request: web.Request) -> web.Response:
    context = request.app[CONTEXT]
    row = await context.operations.get_request(request.match_info["id"])
    # Without a final row the attempts would have no end.
    attempts = await context.operations.list_attempts(row.id) if row.attempts else []
    searches = await context.operations.list_searches(row.id) if row.attempts else []
    names = await context.operations.key_names([row.token_id])
    key_name = names.get(row.token_id, row.token_id)
    fields = row._asdict()
    # The upstream errors have a section of their own.
    without_errors = [attempt._replace(error=None)._asdict() for attempt in attempts]
    stored = StoredResponses(context.operations.database, context.operations.audit)
    reply = await stored.of_request(row.id)
    is_running = row.state is ExchangeState.RUNNING
    *summary, last = sections(fields, without_errors, context.runtime.config.money)
    server = context.runtime.config.server
    address = server.public_url or str(request.url.origin())
    return render(
        request,
        "request.html",
        row=row,
        reply=reply,
        chain=await stored.chain(reply) if reply is not None else [],
        key=names.get(row.token_id),
        is_running=is_running,
        headline=headline(fields, key_name, format_utc(row.started_at)),
        summary=[*summary, last] if is_running else summary,
        receipt=None if is_running else last,
        lines=waterfall(row.total_us, attempts),
        ticks=ticks(row.total_us or 0),
        curl=curl_command(row, address, server.version_headers[0]),
        searches=searches,
        upstream_errors=list(_upstream_errors(row, attempts)),
        fields=[
            (field, _format_field(field, value))
            for field, value in fields.items()
            if field != "upstream_error"
        ],
    )


def _upstream_errors(row: RequestRow, attempts: Sequence[AttemptRow]) -> Iterator[tuple[str, str]]:
    """The source and text of each attempt's error; that of the row if no attempt has it."""
    for number, attempt in enumerate(attempts, 1):
        if attempt.error:
            source = _source(attempt.channel, attempt.account, attempt.status)
            yield f"{number}. {source}", attempt.error
    if (
        row.upstream_error
        and row.channel
        and row.upstream_error not in {attempt.error for attempt in attempts}
    ):
        yield _source(row.channel, row.account, row.upstream_status), row.upstream_error


def _source(channel: str | None, account: str | None, status: int | None) -> str:
    name = f"{channel}/{account}" if channel else "Upstream"
    return f"{name}: {f'status {status}' if status else 'no response'}"


def _format_field(name: str, value: Any) -> Any:
    """The value of a column, with its meaning in parentheses where it has a unit."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_at"):
        return format_time(value)
    return format_field(name, value)
