"""The pages of keys: all of them, one of them, and what becomes of one. They must not know how a
key is checked, nor how what is typed is read (`token_forms` asks for that).

A new key is shown on the first page after it was made, and never again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from gateway.console.allowances import Budget, Spent, budgets_of, counts_of, spent_by
from gateway.console.consumption import DAYS, drawn, last_days, last_models
from gateway.console.entries import Wrong, read_overlap
from gateway.console.images import svg
from gateway.console.office import OFFICE, Office
from gateway.console.rendering import hand, render, say, see, taken
from gateway.quota.limits import HolderKind
from gateway.store.records import Token, TokenState

LIST: Final = "/console/tokens"

AT_ONCE: Final = 100
"""Keys of one page: more would keep running replies waiting while it is put together."""


@dataclass(frozen=True, slots=True)
class Line:
    """A key as the list has it; `state` may be `expired`."""

    token: Token
    state: str
    spent: Spent
    budgets: tuple[Budget, ...]


def add(app: web.Application) -> None:
    router = app.router
    router.add_get("/tokens", list_tokens)
    router.add_get("/tokens/{id:tok_[^/]+}", show_token)
    router.add_get("/tokens/{id:tok_[^/]+}/usage.svg", draw_usage)
    router.add_post("/tokens/{id:tok_[^/]+}/disable", disable)
    router.add_post("/tokens/{id:tok_[^/]+}/enable", enable)
    router.add_get("/tokens/{id:tok_[^/]+}/rotate", ask_rotation)
    router.add_post("/tokens/{id:tok_[^/]+}/rotate", rotate)
    router.add_get("/tokens/{id:tok_[^/]+}/revoke", ask_revocation)
    router.add_post("/tokens/{id:tok_[^/]+}/revoke", revoke)


async def list_tokens(request: web.Request) -> web.Response:
    """By name, some at a time; revoked ones only where they are asked for. The query: `q` for what
    stands in name, group, id or what is shown of the key; `page` from 1; `revoked`."""
    office = request.app[OFFICE]
    tokens = await office.desk.keys()
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
        lines=[line_of(office, token) for token in found[(page - 1) * AT_ONCE : page * AT_ONCE]],
        sought=sought,
        with_revoked=with_revoked,
        revoked=sum(token.state is TokenState.REVOKED for token in tokens),
        found=len(found),
        many=len(tokens) > AT_ONCE,
        page=page,
        pages=max(1, -(-len(found) // AT_ONCE)),
    )


async def show_token(request: web.Request) -> web.Response:
    office = request.app[OFFICE]
    token = await token_of(request)
    now = office.now()
    return render(
        request,
        "token.html",
        line=line_of(office, token),
        counts=list(counts_of(token.limits)),
        old_key=token.old_expires_at is not None and token.old_expires_at > now,
        days=await last_days(office.desk, now, token.id),
        models=await last_models(office.desk, now, token.id),
        span=DAYS,
        key=taken(request, token.id),
    )


async def draw_usage(request: web.Request) -> web.Response:
    """Beside the loop: drawing takes a while."""
    office = request.app[OFFICE]
    token = await token_of(request)
    days = await last_days(office.desk, office.now(), token.id)
    return svg(await asyncio.to_thread(drawn, days))


async def disable(request: web.Request) -> web.Response:
    return await _switch(request, TokenState.DISABLED, "disabled: it is refused until enabled")


async def enable(request: web.Request) -> web.Response:
    return await _switch(request, TokenState.ACTIVE, "enabled")


async def ask_rotation(request: web.Request) -> web.Response:
    token = await token_of(request)
    return render(request, "token_rotate.html", token=token, overlap="24h", mistakes={})


async def rotate(request: web.Request) -> web.Response:
    token = await token_of(request)
    overlap = str((await request.post()).get("overlap", ""))
    try:
        seconds = read_overlap(overlap)
    except Wrong as wrong:
        page = {"token": token, "overlap": overlap, "mistakes": wrong.mistakes}
        return render(request, "token_rotate.html", status=422, **page)
    _, key = await request.app[OFFICE].desk.rotate_key(token.id, seconds * 1_000_000)
    hand(request, token.id, key)
    say(request, f"Key {token.name} has a successor.")
    return see(f"{LIST}/{token.id}")


async def ask_revocation(request: web.Request) -> web.Response:
    return render(request, "token_revoke.html", token=await token_of(request))


async def revoke(request: web.Request) -> web.Response:
    token = await token_of(request)
    await request.app[OFFICE].desk.revoke_key(token.id)
    say(request, f"Key {token.name} ({token.display}) is revoked: it opens nothing any more.")
    return see(f"{LIST}/{token.id}")


async def token_of(request: web.Request) -> Token:
    """The token that the path names. Raises UnknownKey."""
    return await request.app[OFFICE].desk.key(request.match_info["id"])


def line_of(office: Office, token: Token) -> Line:
    now = office.now()
    spent = spent_by(office.runtime.quota, HolderKind.KEY, token.id, now)
    expired = token.expires_at is not None and token.expires_at <= now
    state = "expired" if expired and token.state is TokenState.ACTIVE else token.state.value
    return Line(token, state, spent, budgets_of(token.limits, spent))


def _has(token: Token, sought: str) -> bool:
    """Whether the text stands in what the list shows; case does not count."""
    shown = (token.name, token.group, token.id, token.display)
    return any(sought.casefold() in each.casefold() for each in shown)


def _page(request: web.Request, found: int) -> int:
    """The page that is asked for; the nearest where there is no such page."""
    asked = request.query.get("page", "1")
    number = int(asked) if asked.isdecimal() and len(asked) < 9 else 1
    return max(1, min(number, -(-found // AT_ONCE)))


async def _switch(request: web.Request, state: TokenState, words: str) -> web.Response:
    token = await token_of(request)
    await request.app[OFFICE].desk.change_key(token.id, state=state)
    say(request, f"Key {token.name} is {words}.")
    return see(f"{LIST}/{token.id}")
