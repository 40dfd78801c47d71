"""Which account a conversation belongs to, so that what an upstream has cached of it is used again.

It is a wish and no duty. It must not know how the accounts are, nor a format's looks.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from math import inf, log
from typing import Final

from multidict import istr

from gateway.core.formats import Format
from gateway.core.parts import Text
from gateway.core.prompt import Prompt, Role, agent_session_id
from gateway.core.value import FastStrEnum
from gateway.routing.health import AccountRef

SESSION_HEADERS: Final = (
    "x-session-id",
    "session-id",
    "session_id",
    "x-conversation-id",
    "conversation_id",
)
"""Where clients name their conversation, in lower case."""

Member = tuple[AccountRef, float]
"""A place and its weight; of weight 0 it comes last."""

_MAX_PREFIX_CHARS: Final = 64 * 1024
"""Characters of what a client says that are looked at."""
_DIGEST_SIZE: Final = 16
_CAPACITY: Final = 50_000
_SYSTEM_ROLES: Final = (Role.SYSTEM, Role.DEVELOPER)
_VOLATILE_SYSTEM_TEXT: Final = re.compile(r"x-[a-z]+-billing-header:")
"""How a system text begins that changes with every request of some agents."""


class AffinitySource(FastStrEnum):
    """What a conversation was recognised by."""

    CACHE_KEY = "prompt_cache_key"
    PREVIOUS_RESPONSE = "previous_response_id"
    USER = "session of the user"
    HEADER = "session header"
    PREVIOUS_MESSAGE = "thread.previous_message_id"
    PREFIX = "prompt prefix"


_CHAIN_SOURCES: Final = (AffinitySource.PREVIOUS_RESPONSE, AffinitySource.PREVIOUS_MESSAGE)


class Affinity:
    """`key` is the same for all requests of a conversation; `place` is where the reply came from
    that a request goes on from, for only there it may be known. The key is computed when it is
    first needed: where there is but one account it never is."""

    __slots__ = ("_key_source", "account_ref", "source")

    def __init__(
        self,
        key_source: bytes | tuple[str, str, str | Prompt],
        clue: AffinitySource,
        account_ref: AccountRef | None = None,
    ) -> None:
        """`source`: the key, or the token's id, the model, and what tells the conversation."""
        self._key_source = key_source
        self.source = clue
        self.account_ref = account_ref

    @property
    def key(self) -> bytes:
        source = self._key_source
        if isinstance(source, tuple):
            token_id, model, identity = source
            texts = (
                (identity,) if isinstance(identity, str) else filter(None, _prefix_texts(identity))
            )
            self._key_source = source = _digest(token_id, model, *texts)
        return source

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Affinity) and self._as_tuple() == other._as_tuple()

    def __hash__(self) -> int:
        return hash(self._as_tuple())

    def __repr__(self) -> str:
        return f"Affinity{self._as_tuple()}"

    def _as_tuple(self) -> tuple[bytes, AffinitySource, AccountRef | None]:
        return self.key, self.source, self.account_ref


class AffinityIndex:
    """Recognises conversations; `headers` are the names, in lower case, of those that tell one.

    A chain of replies, in which each request names only the reply before, is followed through the
    newest `remembered` replies; what is older is a conversation of its own.
    """

    __slots__ = ("_capacity", "_headers", "_replies")

    def __init__(self, headers: Sequence[str] = SESSION_HEADERS, capacity: int = _CAPACITY) -> None:
        self._headers = tuple(map(istr, headers))
        self._capacity = capacity
        self._replies: OrderedDict[bytes, tuple[bytes, AccountRef]] = OrderedDict()

    def set_headers(self, headers: Sequence[str]) -> None:
        """From now on these headers tell a conversation; the replies stay known."""
        self._headers = tuple(map(istr, headers))

    def for_prompt(
        self, prompt: Prompt, headers: Mapping[str, str], token_id: str, model: str
    ) -> Affinity | None:
        """The affinity of a prompt for the catalog's `model`, in the token's own namespace; None
        where nothing tells it from any other. `headers` are found by names in lower case."""
        previous_id = prompt.previous_response_id or _previous_message_id(prompt)
        previous = self._replies.get(_digest(token_id, previous_id)) if previous_id else None
        account_ref = previous[1] if previous else None
        source, identity = self._find_source(prompt, headers)
        if previous and source in _CHAIN_SOURCES:
            return Affinity(previous[0], source, account_ref)
        if identity:
            return Affinity((token_id, model, identity), source, account_ref)
        if not any(_stable_texts(prompt)):
            return None
        return Affinity((token_id, model, prompt), AffinitySource.PREFIX)

    def record(
        self, affinity: Affinity, token_id: str, reply_id: str, account_ref: AccountRef
    ) -> None:
        """A reply, by its id as the client knows it, has come from there."""
        digest = _digest(token_id, reply_id)
        self._replies[digest] = (affinity.key, account_ref)
        self._replies.move_to_end(digest)
        if len(self._replies) > self._capacity:
            self._replies.popitem(last=False)

    def _find_source(
        self, prompt: Prompt, headers: Mapping[str, str]
    ) -> tuple[AffinitySource, str | None]:
        """The first one that tells the conversation, and what it says of it."""
        if prompt.cache_key:
            return AffinitySource.CACHE_KEY, prompt.cache_key
        if prompt.previous_response_id:
            return AffinitySource.PREVIOUS_RESPONSE, prompt.previous_response_id
        if prompt.user is not None and (session := agent_session_id(prompt.user)):
            return AffinitySource.USER, session
        for name in self._headers:
            if value := headers.get(name):
                return AffinitySource.HEADER, value
        return AffinitySource.PREVIOUS_MESSAGE, _previous_message_id(prompt)


def can_be_continued(prompt: Prompt) -> bool:
    """Whether a later prompt may name the reply to this one, and nothing before it."""
    if prompt.format is Format.RESPONSES:
        return prompt.store is not False
    extra = prompt.extra.data if prompt.extra is not None else None
    return prompt.format is Format.MESSAGES and isinstance(extra, dict) and "thread" in extra


def rendezvous_order(
    key: bytes, members: Sequence[Member], first: AccountRef | None = None
) -> list[int]:
    """The indexes of the members, the one that the key belongs to first; `first` goes before it.

    Rendezvous hashing: the same everywhere and at all times, each member leads as often as its
    weight says, and one that comes or goes moves no key between the others.
    """
    arrivals = [
        -inf if ref == first else _arrival_time(_hash_to_unit(key, ref), weight)
        for ref, weight in members
    ]
    return sorted(range(len(members)), key=arrivals.__getitem__)


def weighted_shuffle(members: Sequence[Member], random_float: Callable[[], float]) -> list[int]:
    """The indexes of the members in an order by chance and weight; `chance` is in [0, 1)."""
    arrivals = [_arrival_time(1.0 - random_float(), weight) for _, weight in members]
    return sorted(range(len(members)), key=arrivals.__getitem__)


def _arrival_time(uniform: float, weight: float) -> float:
    """When a member arrives in a race that each wins as often as its weight says."""
    return -log(uniform) / weight if weight > 0 else inf


def _hash_to_unit(key: bytes, account_ref: AccountRef) -> float:
    """In (0, 1), both ends excluded."""
    digest = blake2b(key + "\0".join(account_ref).encode(), digest_size=8).digest()
    return ((int.from_bytes(digest, "big") >> 12) + 0.5) / (1 << 52)


def _prefix_texts(prompt: Prompt) -> Iterator[str]:
    """What stays the same from turn to turn. What the user said first tells most, so it is looked
    at first; then the rest as far as it is worth the time."""
    left = _MAX_PREFIX_CHARS
    for text in _stable_texts(prompt):
        yield text[:left]
        left -= len(text)
        if left <= 0:
            return


def _stable_texts(prompt: Prompt) -> Iterator[str]:
    opening = next((turn for turn in prompt.turns if turn.role not in _SYSTEM_ROLES), None)
    if opening is not None and opening.role is Role.USER:
        yield from (part.text for part in opening.parts if isinstance(part, Text))
    for turn in prompt.turns:
        if turn is opening:
            break
        for part in turn.parts:
            if isinstance(part, Text) and not _VOLATILE_SYSTEM_TEXT.match(part.text):
                yield part.text
    for tool in prompt.tools:
        yield tool.name
        yield tool.description or ""


def _previous_message_id(prompt: Prompt) -> str | None:
    if prompt.extra is None:
        return None
    pocket = prompt.extra.data
    thread = pocket.get("thread") if isinstance(pocket, dict) else None
    previous = thread.get("previous_message_id") if isinstance(thread, dict) else None
    return previous if isinstance(previous, str) else None


def _digest(*texts: str) -> bytes:
    joined = "\0".join(text[:_MAX_PREFIX_CHARS] for text in texts).encode(errors="surrogatepass")
    return blake2b(joined, digest_size=_DIGEST_SIZE).digest()
