"""Reads the list of models of an upstream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar
from yarl import URL

from gateway import __version__
from gateway.config.channel import Account, Channel
from gateway.config.discovered import MAX_MODELS, parse_models
from gateway.core.formats import Format
from gateway.upstream.client import UpstreamClient
from gateway.upstream.response import AttemptFailed

TIMEOUT: Final = 20.0
"""Seconds for a whole list."""

MAX_BODY: Final = 16 * 1024 * 1024
"""Bytes of a page."""

_MAX_PAGES: Final = 20
_PAGE: Final = 1000
_PIECE: Final = 64 * 1024
_OK: Final = 200

log = logging.getLogger(__name__)


class ModelListFailed(Exception):
    """The text says why, without secrets."""


async def fetch_models(upstream: UpstreamClient, channel: Channel) -> list[dict[str, Any]] | None:
    """Returns the models that the channel's upstream lists, as `parse_models` does. The first
    account that gets an answer decides; None, with a warning in the log, where none does."""
    reason = ""
    for account in channel.accounts:
        extra = {name: value.get_secret_value() for name, value in channel.headers.items()}
        headers = {
            "accept": "application/json",
            "user-agent": channel.user_agent or f"model-gateway/{__version__}",
            **({"anthropic-version": "2023-06-01"} if channel.format is Format.MESSAGES else {}),
            **extra,
        }
        try:
            async with asyncio.timeout(TIMEOUT), _session(headers) as session:
                return await _read_pages(session, upstream, channel, account)
        except TimeoutError:
            reason = f"no complete answer within {TIMEOUT:.0f} s"
        except (ClientError, OSError) as error:
            reason = type(error).__name__
        except (ModelListFailed, AttemptFailed) as error:
            reason = str(error)
    log.warning("channel %s: its list of models cannot be read: %s", channel.name, reason)
    return None


async def _read_pages(
    session: ClientSession, upstream: UpstreamClient, channel: Channel, account: Account
) -> list[dict[str, Any]]:
    is_messages = channel.format is Format.MESSAGES
    url = channel.base_url.rstrip("/") + ("/v1/models" if is_messages else "/models")
    query: dict[str, str] = {"limit": str(_PAGE)} if is_messages else {}
    entries: list[object] = []
    for _ in range(_MAX_PAGES):
        page_url = URL(url).with_query({**channel.query, **query})
        headers = await upstream.credential_headers(channel, account, page_url)
        page = await _read_page(session, page_url, headers, channel.proxy)
        listed = page.get("data")
        if not isinstance(listed, list):
            raise ModelListFailed("the answer has no list of models")
        entries += listed
        last = page.get("last_id")
        if page.get("has_more") is not True or not isinstance(last, str):
            break
        if not listed or len(entries) >= MAX_MODELS or query.get("after_id") == last:
            break
        query["after_id"] = last
    return await asyncio.to_thread(parse_models, entries)


async def _read_page(
    session: ClientSession, url: URL, headers: Mapping[str, str], proxy: str | None
) -> dict[str, Any]:
    async with session.get(url, headers=headers, proxy=proxy, allow_redirects=False) as response:
        if response.status != _OK:
            raise ModelListFailed(f"status {response.status}")
        body = bytearray()
        async for piece in response.content.iter_chunked(_PIECE):
            body += piece
            if len(body) > MAX_BODY:
                raise ModelListFailed(f"more than {MAX_BODY} bytes")
    try:
        page = await asyncio.to_thread(orjson.loads, bytes(body))
    except ValueError:
        page = None
    if not isinstance(page, dict):
        raise ModelListFailed("the answer is no JSON object")
    return page


def _session(headers: Mapping[str, str]) -> ClientSession:
    return ClientSession(
        headers=headers, cookie_jar=DummyCookieJar(), timeout=ClientTimeout(total=None)
    )
