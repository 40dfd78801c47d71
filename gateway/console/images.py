"""Drawings as answers. It must not know what is drawn."""

from __future__ import annotations

from typing import Final

from aiohttp import web

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""A drawing is a document of its own, with its colours in it."""


def svg_response(image: bytes) -> web.Response:
    """The drawing for an `<img>`; looked at by itself it can do nothing either."""
    headers = {"Content-Security-Policy": _POLICY}
    return web.Response(body=image, content_type="image/svg+xml", headers=headers)
