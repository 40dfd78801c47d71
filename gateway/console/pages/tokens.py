"""The pages of keys: the list, one key with its usage, and the changes of its state.

A new key is shown on the first page after it was created, and never again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aiohttp import web

from gateway.admin.access.permissions import Permission, requires
from gateway.admin.errors import FormError
from gateway.admission.budgets import holder_of
from gateway.console.context import CONTEXT, ConsoleContext
from gateway.console.form_input import error_messages, parse_overlap
from gateway.console.rendering import flash, pop_stash, redirect, render, stash_once
from gateway.console.spending import MOST_PARTS, Span, logs_url, spending_chart
from gateway.console.time_range import parse_range
from gateway.console.usage_view import (
    BudgetRow,
    Spend,
    budget_rows,
    dimension_rows,
    limit_rows,
    spend_of,
)
from gateway.quota.limits import HolderKind
from gateway.store.log.usage import Dimension, usage
from gateway.store.records import HOUR_US, Token, TokenState
from gateway.store.tokens import search_tokens

LIST_PATH: Final = "/console/tokens"

PAGE_SIZE: Final = 100
"""Keys on a page: rendering more would delay running streams."""

_DEFAULT_RANGE: Final = "30d"


@dataclass(frozen=True, slots=True)
class TokenRow:
    """`state` can also be a refusal (`Permit.refusal`)."""

    token: Token
    state: str
    spent: Spend
    budgets: tuple[BudgetRow, ...]


routes = web.RouteTableDef()


@routes.get("/tokens")
@requires(Permission.READ)
async def list_tokens(request: web.Request) -> web.Response:
    """Lists the tokens, sorted by name. The query: `q` is a part of name, group, id or displayed
    key; `page` counts from 1; `revoked` includes revoked keys."""
    context = request.app[CONTEXT]
    search = request.query.get("q", "").strip()
    with_revoked = "revoked" in request.query
    page = await search_tokens(
        context.operations.database,
        search,
        with_revoked=with_revoked,
        number=_page_number(request),
        size=PAGE_SIZE,
    )
    return render(
        request,
        "tokens.html",
        rows=[_token_row(context, token) for token in page.tokens],
        page=page,
        search=search,
        with_revoked=with_revoked,
        has_search=page.total > PAGE_SIZE or bool(search),
    )


@routes.get("/tokens/{id:tok_[^/]+}")
@requires(Permission.READ)
async def show_token(request: web.Request) -> web.Response:
    context = request.app[CONTEXT]
    token = await requested_token(request)
    now = context.now()
    range_ = parse_range(request.query, now, _DEFAULT_RANGE)
    span, database = Span.of(range_), context.operations.database
    models = await usage(
        database,
        (Dimension.MODEL,),
        since=span.since // HOUR_US,
        until=span.until // HOUR_US,
        token_id=token.id,
    )
    top = {
        model: (model, logs_url(span.since, span.until, key=token.id, model=model))
        for row in models[:MOST_PARTS]
        if (model := row.model)
    }
    return render(
        request,
        "token.html",
        row=_token_row(context, token),
        limits=list(limit_rows(token.limits)),
        dimension_budgets=list(dimension_rows(token)),
        has_old_key=token.old_expires_at is not None and token.old_expires_at > now,
        range_error=range_.error,
        chart=await spending_chart(database, span, "model", top, key=token.id),
        models=models,
        default_range=_DEFAULT_RANGE,
        key=pop_stash(request, token.id),
    )


@routes.post("/tokens/{id:tok_[^/]+}/disable")
@requires(Permission.KEYS, "key.update")
async def disable(request: web.Request) -> web.Response:
    return await _set_state(request, TokenState.DISABLED)


@routes.post("/tokens/{id:tok_[^/]+}/enable")
@requires(Permission.KEYS, "key.update")
async def enable(request: web.Request) -> web.Response:
    return await _set_state(request, TokenState.ACTIVE)


@routes.get("/tokens/{id:tok_[^/]+}/rotate")
@requires(Permission.KEYS)
async def rotation_form(request: web.Request) -> web.Response:
    token = await requested_token(request)
    return render(request, "token_rotate.html", token=token, texts={"overlap": "24h"}, errors={})


@routes.post("/tokens/{id:tok_[^/]+}/rotate")
@requires(Permission.KEYS, "key.rotate")
async def rotate(request: web.Request) -> web.Response:
    token = await requested_token(request)
    overlap = str((await request.post()).get("overlap", ""))
    try:
        seconds = parse_overlap(overlap)
    except FormError as error:
        values = {"token": token, "texts": {"overlap": overlap}, "errors": error_messages(error)}
        return render(request, "token_rotate.html", status=422, **values)
    _, key = await request.app[CONTEXT].operations.rotate_key(token.id, seconds * 1_000_000)
    stash_once(request, token.id, key)
    flash(request, f"Key {token.name} rotated.")
    return redirect(f"{LIST_PATH}/{token.id}")


@routes.get("/tokens/{id:tok_[^/]+}/revoke")
@requires(Permission.KEYS)
async def revocation_form(request: web.Request) -> web.Response:
    return render(request, "token_revoke.html", token=await requested_token(request))


@routes.post("/tokens/{id:tok_[^/]+}/revoke")
@requires(Permission.KEYS, "key.revoke")
async def revoke(request: web.Request) -> web.Response:
    token = await requested_token(request)
    let_run = "let_run" in await request.post()
    await request.app[CONTEXT].operations.revoke_key(token.id, let_run=let_run)
    flash(request, f"Key {token.name} ({token.display}) revoked.")
    return redirect(f"{LIST_PATH}/{token.id}")


async def requested_token(request: web.Request) -> Token:
    """The token of the path. Raises UnknownKey."""
    return await request.app[CONTEXT].operations.get_key(request.match_info["id"])


def _token_row(context: ConsoleContext, token: Token) -> TokenRow:
    now = context.now()
    quota, holder = context.runtime.quota, holder_of(HolderKind.KEY, token)
    spent = spend_of(quota, HolderKind.KEY, token.id, now)
    state = context.runtime.refusal(token) or token.state.value
    return TokenRow(token, state, spent, budget_rows(quota, holder, now))


def _page_number(request: web.Request) -> int:
    """The requested page, which may be beyond the last."""
    text = request.query.get("page", "1")
    return max(1, int(text)) if text.isdecimal() and len(text) < 9 else 1


async def _set_state(request: web.Request, state: TokenState) -> web.Response:
    token = await requested_token(request)
    let_run = "let_run" in await request.post()
    await request.app[CONTEXT].operations.update_key(token.id, state=state, let_run=let_run)
    flash(request, f"Key {token.name} {'enabled' if state is TokenState.ACTIVE else 'disabled'}.")
    return redirect(f"{LIST_PATH}/{token.id}")
