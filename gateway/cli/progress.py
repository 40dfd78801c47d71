"""A bar on the terminal while a command takes long."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

Advance = Callable[[int, int], None]
"""Gets how much is done, and of how much."""


@contextmanager
def show_progress(text: str, *, hidden: bool = False) -> Iterator[Advance]:
    """Shows progress on a terminal's standard error; it is gone at the end. SIGTERM ends the
    command as Ctrl-C does, so that nothing is left half done."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    console = Console(stderr=True)
    columns = (TextColumn(text), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    is_hidden = hidden or not console.is_terminal
    try:
        with Progress(*columns, console=console, transient=True, disable=is_hidden) as bar:
            task = bar.add_task(text, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    finally:
        signal.signal(signal.SIGTERM, before)
