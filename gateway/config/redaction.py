"""Removes secrets, addresses and account names from texts of upstreams and of the process log.

Operators read the text without secrets; clients must not see an address, an account or a key.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from pydantic import BaseModel, SecretStr

from gateway.config.schema import Config
from gateway.config.secrets import is_secret_name

_KEY_PATTERN = r"\b(?:sk-|gwa_)[A-Za-z0-9_\-*.]{6,}|\bBearer\s+[A-Za-z0-9._~+/\-]{8,}=*"
_NAMED_KEY_PATTERN = r"(?i:(?<=api[_-]key[=:])|(?<=x-api-key: )|(?<=[?&]key=))[^\s&\"',;\\]+"
_ADDRESS_PATTERN = (
    r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"
    r"|\blocalhost(?::\d+)?\b"
    r"|(?<!\w)\[(?=[\da-f:.]*::|(?:[\da-f]+:){6})[\da-f:.]+\](?::\d+)?"
)
_FIELD_PATTERN = (
    r"(?i:(\b(?:(?:proxy-)?authorization|x-api-key|api[_-]key)[\"']?\s?[:=,]\s?"
    r"(?:b?[\"'])?(?:(?:basic|bearer|digest)\s)?"
    r"|\b(?:key|token|secret|password)=[\"']?"
    r"|://[^\s/:@]{0,99}:(?=[^\s/@]{1,999}@))"
    r"(?!\[redacted)[^\s\"',;\\@)}\]]+"
    r"|(\b(?:set-)?cookie[\"']?\s?[:=,]\s?(?:b?[\"'])?)[^\"'\r\n]+)"
)
"""Credentials by the name of their field, as libraries show headers, queries and URLs."""
_MIN_SECRET: Final = 8
"""Characters of a header's value; shorter ones, such as `true` or `eu-west`, are no secrets."""
_MIN_PATH: Final = 20
"""Characters of a path or query of a webhook's address; a shorter one is no secret."""
_MAX_WORD: Final = 11
"""Letters that an ordinary word may have."""
_MIN_FRAGMENT: Final = 12
"""Characters of a key that are redacted wherever they are."""
_STRIDE: Final = 6
_MIN_END: Final = 4
"""Characters of the beginning of a key that are redacted at the end of a text: it may be cut."""
_MAX_TEXT: Final = 64 * 1024
"""Characters of a text; no error has more."""
_REDACTED: Final = "[redacted]"


class Redactor:
    """Built once from a configuration: its secrets, the names of its `hosts`, its `accounts`.

    A host or an account may be called `model` or `main`. Such an ordinary word (up to 11 letters,
    or no letter at all) reveals nothing and occurs in many errors that must stay readable, so it is
    removed only where it must be a host: after `http://` or before a port.

    Texts may come cut, and upstreams shorten keys: fragments of keys are removed too. A text of any
    content takes time in proportion to its length, whatever the number of keys.
    """

    def __init__(
        self,
        keys: Iterable[str],
        hosts: Iterable[str],
        accounts: Iterable[str],
        values: Iterable[str] = (),
    ) -> None:
        """`values` are those of headers that are no keys by their names: they are redacted as a
        whole."""
        keys = _by_length(keys)
        short = [re.escape(key) for key in keys if len(key) < _MIN_FRAGMENT]
        self._keys = re.compile("|".join([*short, _KEY_PATTERN, _NAMED_KEY_PATTERN]))
        self._values = re.compile("|".join(map(re.escape, _by_length(values))) or "(?!)")
        self._fragments = _substrings(keys, _MIN_FRAGMENT)
        self._anchors = _substrings(keys, _MIN_FRAGMENT - _STRIDE + 1)
        self._beginnings = {
            key[:size] for key in keys for size in range(_MIN_END, min(len(key), _MIN_FRAGMENT))
        }
        host_patterns = map(_host_pattern, _by_length(hosts))
        addresses = "|".join([*host_patterns, rf"(?:https?://)?(?:{_ADDRESS_PATTERN})"])
        self._addresses = re.compile(rf"(?i:{addresses})[^\s\"',;)\\]*")
        accounts = map(re.escape, filter(_is_specific, _by_length(accounts)))
        self._accounts = re.compile(rf"(?<![\w-])(?:{'|'.join(accounts) or '(?!)'})(?![\w-])")

    @classmethod
    def from_config(cls, config: Config, issued: Iterable[str] = ()) -> Redactor:
        """`issued` are credentials that the configuration does not have itself."""
        accounts = [account for channel in config.channels for account in channel.accounts]
        addresses = [
            address
            for channel in config.channels
            for address in (channel.base_url, channel.proxy or "")
        ]
        if config.search is not None:
            addresses.append(config.search.url)
        keys, values = config_secrets(config)
        return cls(
            keys=[*keys, *issued],
            values=values,
            hosts=(urlsplit(address).hostname or "" for address in addresses),
            accounts=(account.name for account in accounts),
        )

    def redact_secrets(self, text: str) -> str:
        """`text` for operators."""
        text = self._values.sub(_REDACTED, text[:_MAX_TEXT])
        return self._keys.sub(_REDACTED, self._redact_fragments(text))

    def reveals(self, text: str) -> bool:
        """Whether a key or a value of the configuration, or a fragment of a key, is in a text."""
        found = next(self._fragment_starts(text), None)
        return found is not None or self._values.search(text) is not None

    def redact_all(self, text: str) -> str:
        """`text` for clients."""
        text = self._addresses.sub("[address]", self.redact_secrets(text))
        return self._accounts.sub("[account]", text)

    def _redact_fragments(self, text: str) -> str:
        """Redacts any `_MIN_FRAGMENT` successive characters of a key, and its beginning at the end
        of the text."""
        spans: list[tuple[int, int]] = []
        for at in self._fragment_starts(text):
            if spans and at <= spans[-1][1]:
                spans[-1] = spans[-1][0], at + _MIN_FRAGMENT
            else:
                spans.append((at, at + _MIN_FRAGMENT))
        kept: list[str] = []
        end = 0
        for start, stop in spans:
            kept += text[end:start], _REDACTED
            end = stop
        rest = text[end:]
        for size in range(min(_MIN_FRAGMENT - 1, len(rest)), _MIN_END - 1, -1):
            if rest[-size:] in self._beginnings:
                rest = rest[:-size] + _REDACTED
                break
        return "".join(kept) + rest

    def _fragment_starts(self, text: str) -> Iterator[int]:
        """Yields the starts of fragments in ascending order. Every fragment has a shorter one at a
        multiple of the stride, so that few places have to be looked at."""
        last, done = len(text) - _MIN_FRAGMENT, -1
        size = _MIN_FRAGMENT - _STRIDE + 1
        for anchor in range(0, len(text) - size + 1, _STRIDE):
            if text[anchor : anchor + size] not in self._anchors:
                continue
            for at in range(max(done + 1, anchor - _STRIDE + 1, 0), min(anchor, last) + 1):
                if text[at : at + _MIN_FRAGMENT] in self._fragments:
                    yield at
            done = anchor


class LogRedactor:
    """The redactor of the process log: it knows the secrets of every configuration so far, and
    credentials by the names of their fields."""

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._values: set[str] = set()
        self._issued = frozenset[str]()
        self._known = Redactor((), (), ())
        self._fields = re.compile(_FIELD_PATTERN)

    def learn(self, config: Config) -> None:
        keys, values = config_secrets(config)
        if not (self._keys.issuperset(keys) and self._values.issuperset(values)):
            self._keys.update(keys)
            self._values.update(values)
            self.learn_issued(self._issued)

    def learn_issued(self, issued: Collection[str]) -> None:
        """Learns credentials that are valid now, in place of those of the last call."""
        self._issued = frozenset(issued)
        self._known = Redactor(self._keys | self._issued, (), (), self._values)

    def redact(self, text: str) -> str:
        """`text`, at most 65,536 characters of it, without secrets."""
        return self._fields.sub(_without_value, self._known.redact_secrets(text))


class Secrets(NamedTuple):
    """The secrets of a configuration: `keys`, and `values` of headers that are no keys by their
    names."""

    keys: list[str]
    values: list[str]


_WITHOUT_SECRETS: Final = {"models", "traits"}
"""Options that can have thousands of values, none of them a secret."""


def config_secrets(config: Config) -> Secrets:
    """Collects every `SecretStr` of the configuration, at any depth."""
    secrets = Secrets([], [])
    for name, value, is_header in _walk("", config, is_header=False):
        if not is_header and is_secret_name(name):
            secrets.keys.append(value)
        elif len(value) >= _MIN_SECRET:
            (secrets.keys if is_secret_name(name) else secrets.values).append(value)
        if name == "url" and not is_header:
            url = urlsplit(value)
            parts = (part for part in (url.path, url.query) if len(part) >= _MIN_PATH)
            secrets.keys.extend(parts)  # libraries show them without the host
    return secrets


def _walk(name: str, value: Any, *, is_header: bool) -> Iterator[tuple[str, str, bool]]:
    """The option or header, its value, and whether it is a header."""
    if isinstance(value, SecretStr):
        if secret := value.get_secret_value():
            yield name, secret, is_header
    elif isinstance(value, BaseModel):
        for option, part in value:
            if option not in _WITHOUT_SECRETS:
                yield from _walk(option, part, is_header=False)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _walk(str(key), part, is_header=True)
    elif isinstance(value, tuple):
        for part in value:
            yield from _walk(name, part, is_header=is_header)


def _without_value(field: re.Match[str]) -> str:
    return f"{field[1] or field[2]}{_REDACTED}"


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


def _substrings(keys: Iterable[str], size: int) -> frozenset[str]:
    return frozenset(
        key[at : at + size]
        for key in keys
        if len(key) >= _MIN_FRAGMENT
        for at in range(len(key) - size + 1)
    )


def _by_length(names: Iterable[str]) -> list[str]:
    return sorted({name for name in names if name}, key=len, reverse=True)
