"""The web console: keys, groups, channels and logs, behind a password."""

from typing import Final

CONSOLE_PATH: Final = "/console"
"""The path of the pages."""
