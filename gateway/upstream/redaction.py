"""Takes secrets and addresses out of texts that upstreams send. It must not know where they go.

Two strengths: `secrets` for what the operator reads in the log row, `everything` for what a client
reads (no address, account name or key of ours may reach it).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_KEYLIKE = r"\bsk-[A-Za-z0-9_\-*.]{6,}|\bBearer\s+[A-Za-z0-9._~+/\-]{8,}=*"
_BY_NAME = r"(?i:(?<=api[_-]key[=:])|(?<=x-api-key: )|(?<=[?&]key=))[^\s&\"',;]+"
_ADDRESS = r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\blocalhost(?::\d+)?\b"


class Redactor:
    """Built once from a configuration: its `keys`, `hosts` (`host` or `host:port`), `accounts`."""

    def __init__(self, keys: Iterable[str], hosts: Iterable[str], accounts: Iterable[str]) -> None:
        secrets = [*map(re.escape, _longest_first(keys)), _KEYLIKE, _BY_NAME]
        self._secrets = re.compile("|".join(secrets))
        places = [*map(re.escape, _longest_first(hosts)), _ADDRESS]
        self._places = re.compile(rf"(?:https?://)?(?:{'|'.join(places)})[^\s\"',;)]*")
        names = "|".join(map(re.escape, _longest_first(accounts))) or r"(?!)"
        self._names = re.compile(rf"(?<![\w-])(?:{names})(?![\w-])")

    def secrets(self, text: str) -> str:
        """`text` without anything that opens a door."""
        return self._secrets.sub("[redacted]", text)

    def everything(self, text: str) -> str:
        """`text` as a client may read it."""
        text = self._places.sub("[address]", self.secrets(text))
        return self._names.sub("[account]", text)


def _longest_first(words: Iterable[str]) -> list[str]:
    return sorted({word for word in words if word}, key=len, reverse=True)
