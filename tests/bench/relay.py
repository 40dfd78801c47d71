"""The yardstick: the least that aiohttp can do between a client and an upstream.

Independent of what passes: no parsing, no checks, no records. What the gateway costs beyond this
is what the gateway does.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator

import aiohttp
import uvloop
from aiohttp import web

UPSTREAM = web.AppKey("UPSTREAM", str)
SESSION = web.AppKey("SESSION", aiohttp.ClientSession)


async def session(app: web.Application) -> AsyncIterator[None]:
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
    ) as app[SESSION]:
        yield


async def relay(request: web.Request) -> web.StreamResponse:
    body = await request.read()
    headers = {"content-type": "application/json"}
    url = request.app[UPSTREAM] + request.path
    async with request.app[SESSION].post(url, data=body, headers=headers) as reply:
        response = web.StreamResponse(status=reply.status)
        response.content_type = reply.content_type
        response.content_length = reply.content_length
        await response.prepare(request)
        async for chunk in reply.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
        return response


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", required=True, help="address that paths are appended to")
    arguments = parser.parse_args()
    app = web.Application()
    app[UPSTREAM] = arguments.upstream
    app.cleanup_ctx.append(session)
    app.router.add_post("/{path:.*}", relay)
    web.run_app(
        app,
        host="127.0.0.1",
        port=arguments.port,
        loop=uvloop.new_event_loop(),
        access_log=None,
        print=None,
        backlog=1024,
    )
