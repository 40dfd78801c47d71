"""Where a request really comes from, when proxies stand in between.

It must not know what the address is used for.
"""

from __future__ import annotations

import re
from typing import Final

_HOP: Final = re.compile(r"\[([^\]]*)\](?::\d+)?|(\d+\.\d+\.\d+\.\d+):\d+", re.ASCII)
"""An address with a port, or in brackets: so some proxies write it."""
