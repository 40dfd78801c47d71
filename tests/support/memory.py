"""A test's gateway is freed at its end: 2 MB, of each of a thousand gateways."""

from __future__ import annotations

from aiohttp import web_app


def pytest_runtest_logfinish() -> None:
    """aiohttp remembers the middlewares of 1,024 handlers, and with them their applications."""
    web_app._cached_build_middleware.cache_clear()
