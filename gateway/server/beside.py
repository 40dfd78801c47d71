"""What is mounted beside the endpoints: it opens no exchange and speaks no format. It must not know
what that is.
"""

from __future__ import annotations

from aiohttp import web


def is_subapp_request(request: web.Request) -> bool:
    """Whether a request is for an application of its own."""
    return len(request.match_info.apps) > 1
