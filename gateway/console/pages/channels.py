"""The page of channels: how their accounts are, and what may be done about it.

It must not know what makes an account well, nor how one is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

import orjson
from aiohttp import web

from gateway.admin.accounts import Accounts
from gateway.console.office import OFFICE
from gateway.console.rendering import hand, render, say, see, taken
from gateway.console.upstreams import channels
from gateway.routing.gate import State
from gateway.routing.health import Place

LIST: Final = "/console/channels"

_TRIED: Final = "tried"

_STANDINGS: Final = {
    State.OPEN: "ok",
    State.PROBING: "info",
    State.COOLING: "warn",
    State.BROKEN: "bad",
    State.BANNED: "bad",
    State.DISABLED: "off",
}
"""How each looks."""


def add(app: web.Application) -> None:
    account = "/channels/{channel}/{account}"
    app.router.add_get("/channels", list_channels)
    app.router.add_post(f"{account}/reset", reset)
    app.router.add_post(f"{account}/disable", disable)
    app.router.add_post(f"{account}/enable", enable)
    app.router.add_post(f"{account}/try", try_account)


async def list_channels(request: web.Request) -> web.Response:
    office = request.app[OFFICE]
    tried = taken(request, _TRIED)
    return render(
        request,
        "channels.html",
        channels=channels(office.runtime, office.accounts),
        standings=_STANDINGS,
        tried=None if tried is None else orjson.loads(tried),
    )


async def reset(request: web.Request) -> web.StreamResponse:
    return _change(request, Accounts.reset, "What was held against {} is forgotten.")


async def disable(request: web.Request) -> web.StreamResponse:
    return _change(request, Accounts.disable, "{} is asked no more; what is under way goes on.")


async def enable(request: web.Request) -> web.StreamResponse:
    return _change(request, Accounts.enable, "{} may be asked again.")


async def try_account(request: web.Request) -> web.StreamResponse:
    """What came of it is on the next page, once."""
    place = _place(request)
    model = str((await request.post()).get("model", "")) or None
    candidate, tried = await request.app[OFFICE].accounts.try_(place, model)
    asked = {
        "channel": candidate.channel,
        "account": candidate.account,
        "model": candidate.model,
        "upstream_model": candidate.target.model,
        "format": candidate.format,
    }
    hand(request, _TRIED, orjson.dumps(asked | asdict(tried)).decode())
    return see(f"{LIST}#tried")


def _change(
    request: web.Request, change: Callable[[Accounts, Place], Any], done: str
) -> web.StreamResponse:
    place = _place(request)
    change(request.app[OFFICE].accounts, place)
    say(request, done.format("/".join(place)))
    return see(LIST)


def _place(request: web.Request) -> Place:
    return request.match_info["channel"], request.match_info["account"]
