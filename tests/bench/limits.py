"""The limit of open files, raised as far as the system allows: thousands of sockets need it."""

from __future__ import annotations

import sys


def raise_open_files() -> None:
    """Set the soft limit to the hard one; child processes inherit it."""
    if sys.platform == "win32":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
