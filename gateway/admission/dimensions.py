"""For whom a request is: its end user, session, agent and tag, as it states them itself.

Nothing proves what a client states, so a dimension is recorded only where the key is set to trust
it: `end-user`, or `end-user=HEADER` for the value of one header.
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from multidict import istr

from gateway.config.secrets import is_secret_name
from gateway.core.prompt import Prompt, agent_session_id, agent_user_id
from gateway.store.records import DAY_US, DIMENSIONS

MAX_CHARS: Final = 200
"""Characters of a value that are kept."""
MAX_VALUES: Final = 10_000
"""Values that a dimension of a key can have in a UTC day; later ones are `OTHER`."""
MAX_ALL_VALUES: Final = 200_000
"""The same of all keys together."""
OTHER: Final = "other"

TAG_HEADER: Final = "x-gateway-tag"

_HEADERS: Final[Mapping[str, tuple[str, ...]]] = {
    "end_user": ("x-openwebui-user-email", "x-openwebui-user-id"),
    "session": (
        *("x-claude-code-session-id", "session-id", "session_id", "x-session-id"),
        "x-openwebui-chat-id",
    ),
    "agent": (),
    "tag": (TAG_HEADER,),
}
"""Headers in which clients state a dimension; the first that is there counts."""

_REQUEST_CLASS: Final = istr("x-claude-code-request-class")
_AGENT_TYPE: Final = istr("x-claude-code-agent-type")
_AGENT_ID: Final = istr("x-claude-code-agent-id")
_SUBAGENT: Final = istr("x-openai-subagent")

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

log = logging.getLogger(__name__)

Headers = Mapping[str, str]


class Dimensions(NamedTuple):
    """The values of `DIMENSIONS`; None is what the request does not state or the key does not
    trust."""

    end_user: str | None = None
    session: str | None = None
    agent: str | None = None
    tag: str | None = None


NO_DIMENSIONS: Final = Dimensions()


def parse_trust(text: str) -> tuple[str, str | None]:
    """The dimension of an item of a key's `trust` and its header, if one is named. Raises
    ValueError."""
    name, equals, header = text.partition("=")
    dimension = name.replace("-", "_")
    if dimension not in DIMENSIONS:
        known = ", ".join(each.replace("_", "-") for each in DIMENSIONS)
        raise ValueError(f"must be one of {known}, or such as end-user=x-email for one header")
    if equals and not _HEADER_NAME.fullmatch(header):
        raise ValueError("must name a header after =, such as end-user=x-email")
    if is_secret_name(header):
        raise ValueError("names a header that may have a credential")
    return dimension, header.lower() if equals else None


class TrustedDimensions:
    """Reads what the requests of a key may state of themselves; built once for a key."""

    def __init__(self, trust: Sequence[str], hash_key: str | None) -> None:
        """`trust` is valid. With a `hash_key` end users are hashed."""
        self._hash_key = None if hash_key is None else hash_key.encode()
        self._headers: dict[str, list[istr]] = {}
        self._readers: dict[str, Callable[[Headers, Prompt | None], str | None]] = {}
        for dimension, header in map(parse_trust, trust):
            names = self._headers.setdefault(dimension, [])
            names += map(istr, _HEADERS[dimension] if header is None else (header,))
            if header is None and dimension in _READERS:
                self._readers[dimension] = _READERS[dimension]

    def read(self, headers: Headers, prompt: Prompt | None) -> Dimensions:
        """What the headers, in the order of the trust, and else the fields of a request state."""
        found: dict[str, str] = {}
        for dimension, names in self._headers.items():
            text = next((text for name in names if (text := headers.get(name))), None)
            reader = self._readers.get(dimension)
            if text is None and reader is not None:
                text = reader(headers, prompt)
            if text and (text := text.strip()):
                found[dimension] = self._hidden(dimension, text)
        return Dimensions(**found)

    def _hidden(self, dimension: str, text: str) -> str:
        if dimension == "end_user" and self._hash_key is not None:
            return hash_end_user(text, self._hash_key)
        text = text[:MAX_CHARS]
        if text.isprintable():
            return text
        return "".join(each if each.isprintable() else "?" for each in text)


def hash_end_user(text: str, hash_key: bytes) -> str:
    """The first 96 bits of an HMAC-SHA256, in hexadecimal digits."""
    return hmac.digest(hash_key, text.encode("utf-8", "surrogatepass"), "sha256")[:12].hex()


class DistinctValues:
    """Bounds how many values the dimensions of keys have in a UTC day: a client could invent a new
    one for each request. This process alone counts, from its start on."""

    def __init__(self) -> None:
        self._day = 0
        self._known: dict[tuple[str, str], set[int]] = {}
        self._count = 0
        self._warned: set[tuple[str, str]] = set()

    def limit(self, token_id: str, stated: Dimensions, now: int) -> tuple[Dimensions, list[str]]:
        """The dimensions with `OTHER` for values beyond the bounds, and the names of those; `now`
        is in Unix microseconds."""
        if now // DAY_US != self._day:
            self._day, self._count = now // DAY_US, 0
            self._known, self._warned = {}, set()
        folded = [
            name
            for name, text in zip(DIMENSIONS, stated, strict=True)
            if text is not None and not self._admit((token_id, name), hash(text))
        ]
        return stated._replace(**dict.fromkeys(folded, OTHER)) if folded else stated, folded

    def _admit(self, place: tuple[str, str], hashed: int) -> bool:
        known = self._known.setdefault(place, set())
        if hashed in known:
            return True
        if len(known) < MAX_VALUES and self._count < MAX_ALL_VALUES:
            known.add(hashed)
            self._count += 1
            return True
        if place not in self._warned:
            self._warned.add(place)
            text = "key %s: too many values of %s today: later ones are recorded as %r"
            log.warning(text, *place, OTHER)
        return False


def _end_user(_: Headers, prompt: Prompt | None) -> str | None:
    return agent_user_id(prompt.user) if prompt is not None and prompt.user else None


def _session(_: Headers, prompt: Prompt | None) -> str | None:
    if prompt is None:
        return None
    session = agent_session_id(prompt.user) if prompt.user else None
    return session or prompt.cache_key


def _agent(headers: Headers, _: Prompt | None) -> str | None:
    """The class of the request, and the type of the sub-agent after a slash."""
    kind = headers.get(_REQUEST_CLASS) or ("subagent" if _AGENT_ID in headers else None)
    if kind is None:
        return headers.get(_SUBAGENT)
    type_ = headers.get(_AGENT_TYPE)
    return f"{kind}/{type_}" if type_ else kind


_READERS: Final = {"end_user": _end_user, "session": _session, "agent": _agent}
"""Where a dimension is stated if none of its headers is there."""
