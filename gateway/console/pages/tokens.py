"""The pages of keys: all of them, one of them, and what becomes of one. They must not know how a
key is checked, nor how what is typed is read (`token_forms` asks for that).

A new key is shown on the first page after it was made, and never again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aiohttp import web

from gateway.console.context import CONTEXT, ConsoleContext
from gateway.console.form_input import FormInputError, parse_overlap
from gateway.console.rendering import flash, pop_stash, redirect, render, render_chart, stash_once
from gateway.console.usage_view import (
    DAYS,
    BudgetRow,
    Spend,
    budget_rows,
    daily_chart,
    daily_usage,
    limit_rows,
    spend_of,
    usage_by_model,
)
from gateway.quota.limits import HolderKind
from gateway.store.records import Token, TokenState

LIST_PATH: Final = "/console/tokens"

PAGE_SIZE: Final = 100
"""Keys of one page: more would keep running replies waiting while it is put together."""


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A key as the list has it; `state` may be `expired`."""

    token: Token
    state: str
    spent: Spend
    budgets: tuple[BudgetRow, ...]


def add_routes(app: web.Application) -> None:
    router = app.router
    router.add_get("/tokens", list_tokens)
    router.add_get("/tokens/{id:tok_[^/]+}", show_token)
    router.add_get("/tokens/{id:tok_[^/]+}/usage.svg", draw_usage)
    router.add_post("/tokens/{id:tok_[^/]+}/disable", disable)
    router.add_post("/tokens/{id:tok_[^/]+}/enable", enable)
    router.add_get("/tokens/{id:tok_[^/]+}/rotate", rotation_form)
    router.add_post("/tokens/{id:tok_[^/]+}/rotate", rotate)
    router.add_get("/tokens/{id:tok_[^/]+}/revoke", revocation_form)
    router.add_post("/tokens/{id:tok_[^/]+}/revoke", revoke)


async def list_tokens(request: web.Request) -> web.Response:
    """By name, some at a time; revoked ones only where they are asked for. The query: `q` for what
    stands in name, group, id or what is shown of the key; `page` from 1; `revoked`."""
    office = request.app[CONTEXT]
    tokens = await office.operations.list_keys()
    sought = request.query.get("q", "").strip()
    with_revoked = "revoked" in request.query
    found = [
        token
        for token in sorted(tokens, key=lambda each: (each.name.casefold(), each.created_at))
        if (with_revoked or token.state is not TokenState.REVOKED) and _has(token, sought)
    ]
    page = _page(request, len(found))
    return render(
        request,
        "tokens.html",
        lines=[
            token_row(office, token) for token in found[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
        ],
        sought=sought,
        with_revoked=with_revoked,
        revoked=sum(token.state is TokenState.REVOKED for token in tokens),
        found=len(found),
        many=len(tokens) > PAGE_SIZE,
        page=page,
        pages=max(1, -(-len(found) // PAGE_SIZE)),
    )


async def show_token(request: web.Request) -> web.Response:
    office = request.app[CONTEXT]
    token = await requested_token(request)
    now = office.now()
    return render(
        request,
        "token.html",
        line=token_row(office, token),
        counts=list(limit_rows(token.limits)),
        old_key=token.old_expires_at is not None and token.old_expires_at > now,
        days=await daily_usage(office.operations, now, token.id),
        models=await usage_by_model(office.operations, now, token.id),
        span=DAYS,
        key=pop_stash(request, token.id),
    )


async def draw_usage(request: web.Request) -> web.Response:
    office = request.app[CONTEXT]
    token = await requested_token(request)
    days = await daily_usage(office.operations, office.now(), token.id)
    return render_chart(request, daily_chart(days))


async def disable(request: web.Request) -> web.Response:
    return await _set_state(request, TokenState.DISABLED, "disabled: it is refused until enabled")


async def enable(request: web.Request) -> web.Response:
    return await _set_state(request, TokenState.ACTIVE, "enabled")


async def rotation_form(request: web.Request) -> web.Response:
    token = await requested_token(request)
    return render(request, "token_rotate.html", token=token, overlap="24h", mistakes={})


async def rotate(request: web.Request) -> web.Response:
    token = await requested_token(request)
    overlap = str((await request.post()).get("overlap", ""))
    try:
        seconds = parse_overlap(overlap)
    except FormInputError as wrong:
        page = {"token": token, "overlap": overlap, "mistakes": wrong.errors}
        return render(request, "token_rotate.html", status=422, **page)
    _, key = await request.app[CONTEXT].operations.rotate_key(token.id, seconds * 1_000_000)
    stash_once(request, token.id, key)
    flash(request, f"Key {token.name} has a successor.")
    return redirect(f"{LIST_PATH}/{token.id}")


async def revocation_form(request: web.Request) -> web.Response:
    return render(request, "token_revoke.html", token=await requested_token(request))


async def revoke(request: web.Request) -> web.Response:
    token = await requested_token(request)
    await request.app[CONTEXT].operations.revoke_key(token.id)
    flash(request, f"Key {token.name} ({token.display}) is revoked: it opens nothing any more.")
    return redirect(f"{LIST_PATH}/{token.id}")


async def requested_token(request: web.Request) -> Token:
    """The token that the path names. Raises UnknownKey."""
    return await request.app[CONTEXT].operations.get_key(request.match_info["id"])


def token_row(office: ConsoleContext, token: Token) -> TokenRow:
    now = office.now()
    spent = spend_of(office.runtime.quota, HolderKind.KEY, token.id, now)
    expired = token.expires_at is not None and token.expires_at <= now
    state = "expired" if expired and token.state is TokenState.ACTIVE else token.state.value
    return TokenRow(token, state, spent, budget_rows(token.limits, spent))


def _has(token: Token, sought: str) -> bool:
    """Whether the text stands in what the list shows; case does not count."""
    shown = (token.name, token.group, token.id, token.display)
    return any(sought.casefold() in each.casefold() for each in shown)


def _page(request: web.Request, found: int) -> int:
    """The page that is asked for; the nearest where there is no such page."""
    asked = request.query.get("page", "1")
    number = int(asked) if asked.isdecimal() and len(asked) < 9 else 1
    return max(1, min(number, -(-found // PAGE_SIZE)))


async def _set_state(request: web.Request, state: TokenState, words: str) -> web.Response:
    token = await requested_token(request)
    await request.app[CONTEXT].operations.update_key(token.id, state=state)
    flash(request, f"Key {token.name} is {words}.")
    return redirect(f"{LIST_PATH}/{token.id}")
