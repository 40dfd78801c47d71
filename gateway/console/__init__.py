"""The console: keys, groups, channels and logs in a browser, behind a guard and a password."""

from typing import Final

CONSOLE_PATH: Final = "/console"
"""The path under which the pages are."""
