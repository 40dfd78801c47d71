"""Takes secrets and addresses out of texts that upstreams send. It must not know where they go.

Two strengths: `secrets` for what the operator reads in the log row, `everything` for what a client
reads (no address, account name or key of ours may reach it).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import urlsplit

from gateway.config import Config

_KEY_PATTERN = r"\bsk-[A-Za-z0-9_\-*.]{6,}|\bBearer\s+[A-Za-z0-9._~+/\-]{8,}=*"
_NAMED_KEY_PATTERN = r"(?i:(?<=api[_-]key[=:])|(?<=x-api-key: )|(?<=[?&]key=))[^\s&\"',;\\]+"
_ADDRESS_PATTERN = (
    r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"
    r"|\blocalhost(?::\d+)?\b"
    r"|(?<!\w)\[(?=[\da-f:.]*::|(?:[\da-f]+:){6})[\da-f:.]+\](?::\d+)?"
)
_MIN_SECRET: Final = 8
"""Characters of a header's value from which it may be a secret and not `true` or `eu-west`."""
_MAX_WORD: Final = 11
"""Letters that an ordinary word may have."""


class Redactor:
    """Built once from a configuration: its secrets, the names of its `hosts`, its `accounts`.

    A host or an account may be called `model` or `main`. Such an ordinary word (nothing but up to
    11 letters, or no letter at all) says nothing about us and stands in many an error that must
    stay readable, so it is taken out only where it can be nothing but a host: behind `http://` or
    before a port.
    """

    def __init__(self, keys: Iterable[str], hosts: Iterable[str], accounts: Iterable[str]) -> None:
        secrets = [*map(re.escape, _longest_first(keys)), _KEY_PATTERN, _NAMED_KEY_PATTERN]
        self._secrets = re.compile("|".join(secrets))
        places = [
            *map(_host_pattern, _longest_first(hosts)),
            rf"(?:https?://)?(?:{_ADDRESS_PATTERN})",
        ]
        self._hosts = re.compile(rf"(?i:{'|'.join(places)})[^\s\"',;)\\]*")
        names = _alternatives(filter(_is_specific, _longest_first(accounts)))
        self._names = re.compile(rf"(?<![\w-]){names}(?![\w-])")

    @classmethod
    def from_config(cls, config: Config) -> Redactor:
        """The redactor that knows every secret and address of a configuration."""
        accounts = [account for channel in config.channels for account in channel.accounts]
        return cls(
            keys=[
                *(account.key.get_secret_value() for account in accounts),
                *_secret_headers(config),
            ],
            hosts=(
                urlsplit(address).hostname or ""
                for channel in config.channels
                for address in (channel.base_url, channel.proxy or "")
            ),
            accounts=(account.name for account in accounts),
        )

    def redact_secrets(self, text: str) -> str:
        """`text` without anything that opens a door."""
        return self._secrets.sub("[redacted]", text)

    def redact_all(self, text: str) -> str:
        """`text` as a client may read it."""
        text = self._hosts.sub("[address]", self.redact_secrets(text))
        return self._names.sub("[account]", text)


def _secret_headers(config: Config) -> Iterator[str]:
    for channel in config.channels:
        for header in channel.headers.values():
            if len(header) >= _MIN_SECRET:
                yield header.get_secret_value()


def _host_pattern(host: str) -> str:
    """The pattern of one host, with or without scheme and port."""
    name = re.escape(host)
    scheme, port = "https?://", r"(?::\d+)"
    edge = r"(?![\w-])"
    if _is_specific(host):
        return rf"(?<![\w-])(?:{scheme})?{name}{port}?{edge}"
    return rf"(?<![\w-])(?:{scheme}{name}{port}?|{name}{port}){edge}"


def _is_specific(name: str) -> bool:
    """Whether a name is more than an ordinary word or a number."""
    has_letters = any(map(str.isalpha, name))
    return has_letters and (len(name) > _MAX_WORD or not name.isalpha())


def _alternatives(words: Iterable[str]) -> str:
    return rf"(?:{'|'.join(map(re.escape, words)) or '(?!)'})"


def _longest_first(words: Iterable[str]) -> list[str]:
    return sorted({word for word in words if word}, key=len, reverse=True)
