"""Serves the admin API for a command, where no gateway runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from gateway.admin.api.console import open_admin_app
from gateway.admin.api.socket import serve_admin
from gateway.cli.options import now_us
from gateway.config.cluster import DatabaseServer


@contextmanager
def serve_standalone(state_dir: Path, place: Path | DatabaseServer) -> Iterator[None]:
    """Serves the API from a thread until the block ends. The caller holds the lock of the state
    directory. Raises StoreError, AdminSocketError and OSError."""
    opened: Future[Callable[[], object]] = Future()
    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(asyncio.run, _serve(state_dir, place, opened))
        try:
            either: tuple[Future[Any], ...] = (opened, served)
            wait(either, return_when=FIRST_COMPLETED)
            if served.done():
                served.result()
            yield
        finally:
            if not opened.cancel():
                opened.result()()
        served.result()


async def _serve(
    state_dir: Path, place: Path | DatabaseServer, opened: Future[Callable[[], object]]
) -> None:
    """`opened` gets the function that ends it."""
    ended = asyncio.Event()
    end = partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set)
    async with open_admin_app(place, now_us) as app, serve_admin(app, state_dir):
        if opened.set_running_or_notify_cancel():
            opened.set_result(end)
            await ended.wait()
