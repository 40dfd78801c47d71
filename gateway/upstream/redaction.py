"""Removes secrets, addresses and account names from the texts of upstreams.

Operators read the text without secrets; clients must not see an address, an account or a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from gateway.config.schema import Config

_KEY_PATTERN = r"\bsk-[A-Za-z0-9_\-*.]{6,}|\bBearer\s+[A-Za-z0-9._~+/\-]{8,}=*"
_NAMED_KEY_PATTERN = r"(?i:(?<=api[_-]key[=:])|(?<=x-api-key: )|(?<=[?&]key=))[^\s&\"',;\\]+"
_ADDRESS_PATTERN = (
    r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"
    r"|\blocalhost(?::\d+)?\b"
    r"|(?<!\w)\[(?=[\da-f:.]*::|(?:[\da-f]+:){6})[\da-f:.]+\](?::\d+)?"
)
_MIN_SECRET: Final = 8
"""Characters of a header's value; shorter ones, such as `true` or `eu-west`, are no secrets."""
_MAX_WORD: Final = 11
"""Letters that an ordinary word may have."""


class Redactor:
    """Built once from a configuration: its secrets, the names of its `hosts`, its `accounts`.

    A host or an account may be called `model` or `main`. Such an ordinary word (up to 11 letters,
    or no letter at all) reveals nothing and occurs in many errors that must stay readable, so it is
    removed only where it must be a host: after `http://` or before a port.
    """

    def __init__(self, keys: Iterable[str], hosts: Iterable[str], accounts: Iterable[str]) -> None:
        secrets = [*map(re.escape, _by_length(keys)), _KEY_PATTERN, _NAMED_KEY_PATTERN]
        self._secrets = re.compile("|".join(secrets))
        host_patterns = map(_host_pattern, _by_length(hosts))
        addresses = "|".join([*host_patterns, rf"(?:https?://)?(?:{_ADDRESS_PATTERN})"])
        self._addresses = re.compile(rf"(?i:{addresses})[^\s\"',;)\\]*")
        accounts = map(re.escape, filter(_is_specific, _by_length(accounts)))
        self._accounts = re.compile(rf"(?<![\w-])(?:{'|'.join(accounts) or '(?!)'})(?![\w-])")

    @classmethod
    def from_config(cls, config: Config) -> Redactor:
        accounts = [account for channel in config.channels for account in channel.accounts]
        headers = [value for channel in config.channels for value in channel.headers.values()]
        secrets = [account.key for account in accounts]
        secrets += [value for value in headers if len(value) >= _MIN_SECRET]
        return cls(
            keys=(secret.get_secret_value() for secret in secrets),
            hosts=(
                urlsplit(address).hostname or ""
                for channel in config.channels
                for address in (channel.base_url, channel.proxy or "")
            ),
            accounts=(account.name for account in accounts),
        )

    def redact_secrets(self, text: str) -> str:
        """`text` for operators."""
        return self._secrets.sub("[redacted]", text)

    def redact_all(self, text: str) -> str:
        """`text` for clients."""
        text = self._addresses.sub("[address]", self.redact_secrets(text))
        return self._accounts.sub("[account]", text)


def _host_pattern(host: str) -> str:
    """The pattern of one host, with or without scheme and port."""
    name = re.escape(host)
    scheme, port = "https?://", r"(?::\d+)"
    edge = r"(?![\w-])"
    if _is_specific(host):
        return rf"(?<![\w-])(?:{scheme})?{name}{port}?{edge}"
    return rf"(?<![\w-])(?:{scheme}{name}{port}?|{name}{port}){edge}"


def _is_specific(name: str) -> bool:
    """Whether a name is neither an ordinary word nor a number."""
    has_letters = any(map(str.isalpha, name))
    return has_letters and (len(name) > _MAX_WORD or not name.isalpha())


def _by_length(names: Iterable[str]) -> list[str]:
    return sorted({name for name in names if name}, key=len, reverse=True)
