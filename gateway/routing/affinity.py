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
from gateway.core.prompt import Prompt, Role
from gateway.core.session import session_of
from gateway.core.word import Word
from gateway.routing.health import Place

SESSION_HEADERS: Final = (
    "x-session-id",
    "session-id",
    "session_id",
    "x-conversation-id",
    "conversation_id",
)
"""Where clients name their conversation, in lower case."""

Member = tuple[Place, float]
"""A place and its weight; of weight 0 it comes last."""

_MOST: Final = 64 * 1024
"""Characters of what a client says that are looked at."""
_BYTES: Final = 16
_REMEMBERED: Final = 50_000
_SYSTEM: Final = (Role.SYSTEM, Role.DEVELOPER)
_ROTATING: Final = re.compile(r"x-[a-z]+-billing-header:")
"""How a system text begins that changes with every request of some agents."""


class Clue(Word):
    """What a conversation was recognised by."""

    CACHE_KEY = "prompt_cache_key"
    PREVIOUS_RESPONSE = "previous_response_id"
    USER = "session of the user"
    HEADER = "session header"
    PREVIOUS_MESSAGE = "thread.previous_message_id"
    PREFIX = "prompt prefix"


_CHAINED: Final = (Clue.PREVIOUS_RESPONSE, Clue.PREVIOUS_MESSAGE)


class Affinity:
    """`key` is the same for all requests of a conversation; `place` is where the reply came from
    that a request goes on from, for only there it may be known. The key is computed when it is
    first needed: where there is but one account it never is."""

    __slots__ = ("_source", "clue", "place")

    def __init__(
        self, source: bytes | tuple[str, str, str | Prompt], clue: Clue, place: Place | None = None
    ) -> None:
        """`source`: the key, or the token's id, the model, and what tells the conversation."""
        self._source = source
        self.clue = clue
        self.place = place

    @property
    def key(self) -> bytes:
        source = self._source
        if isinstance(source, tuple):
            token_id, model, told = source
            texts = (told,) if isinstance(told, str) else filter(None, _prefix(told))
            self._source = source = _digest(token_id, model, *texts)
        return source

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Affinity) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return f"Affinity{self._all()}"

    def _all(self) -> tuple[bytes, Clue, Place | None]:
        return self.key, self.clue, self.place


class Affinities:
    """Recognises conversations; `headers` are the names, in lower case, of those that tell one.

    A chain of replies, in which each request names only the reply before, is followed through the
    newest `remembered` replies; what is older is a conversation of its own.
    """

    __slots__ = ("_headers", "_remembered", "_replies")

    def __init__(
        self, headers: Sequence[str] = SESSION_HEADERS, remembered: int = _REMEMBERED
    ) -> None:
        self._headers = tuple(map(istr, headers))
        self._remembered = remembered
        self._replies: OrderedDict[bytes, tuple[bytes, Place]] = OrderedDict()

    def heed(self, headers: Sequence[str]) -> None:
        """From now on these headers tell a conversation; the replies stay known."""
        self._headers = tuple(map(istr, headers))

    def of(
        self, prompt: Prompt, headers: Mapping[str, str], token_id: str, model: str
    ) -> Affinity | None:
        """The affinity of a prompt for the catalog's `model`, in the token's own namespace; None
        where nothing tells it from any other. `headers` are found by names in lower case."""
        chain = prompt.previous_response_id or _previous_message(prompt)
        known = self._replies.get(_digest(token_id, chain)) if chain else None
        place = known[1] if known else None
        clue, told = self._clue(prompt, headers)
        if known and clue in _CHAINED:
            return Affinity(known[0], clue, place)
        if told:
            return Affinity((token_id, model, told), clue, place)
        if not any(_stable(prompt)):
            return None
        return Affinity((token_id, model, prompt), Clue.PREFIX)

    def remember(self, affinity: Affinity, token_id: str, reply_id: str, place: Place) -> None:
        """A reply, by its id as the client knows it, has come from there."""
        name = _digest(token_id, reply_id)
        self._replies[name] = (affinity.key, place)
        self._replies.move_to_end(name)
        if len(self._replies) > self._remembered:
            self._replies.popitem(last=False)

    def _clue(self, prompt: Prompt, headers: Mapping[str, str]) -> tuple[Clue, str | None]:
        """The first one that tells the conversation, and what it says of it."""
        if prompt.cache_key:
            return Clue.CACHE_KEY, prompt.cache_key
        if prompt.previous_response_id:
            return Clue.PREVIOUS_RESPONSE, prompt.previous_response_id
        if prompt.user is not None and (session := session_of(prompt.user)):
            return Clue.USER, session
        for name in self._headers:
            if value := headers.get(name):
                return Clue.HEADER, value
        return Clue.PREVIOUS_MESSAGE, _previous_message(prompt)


def can_be_continued(prompt: Prompt) -> bool:
    """Whether a later prompt may name the reply to this one, and nothing before it."""
    if prompt.format is Format.RESPONSES:
        return prompt.store is not False
    extra = prompt.extra.data if prompt.extra is not None else None
    return prompt.format is Format.MESSAGES and isinstance(extra, dict) and "thread" in extra


def order(key: bytes, members: Sequence[Member], first: Place | None = None) -> list[int]:
    """The indexes of the members, the one that the key belongs to first; `first` goes before it.

    Rendezvous hashing: the same everywhere and at all times, each member leads as often as its
    weight says, and one that comes or goes moves no key between the others.
    """
    times = [
        -inf if place == first else _time(_chance(key, place), weight) for place, weight in members
    ]
    return sorted(range(len(members)), key=times.__getitem__)


def scattered(members: Sequence[Member], chance: Callable[[], float]) -> list[int]:
    """The indexes of the members in an order by chance and weight; `chance` is in [0, 1)."""
    times = [_time(1.0 - chance(), weight) for _, weight in members]
    return sorted(range(len(members)), key=times.__getitem__)


def _time(chance: float, weight: float) -> float:
    """When a member arrives in a race that each wins as often as its weight says."""
    return -log(chance) / weight if weight > 0 else inf


def _chance(key: bytes, place: Place) -> float:
    """In (0, 1), both ends excluded."""
    drawn = blake2b(key + "\0".join(place).encode(), digest_size=8).digest()
    return ((int.from_bytes(drawn, "big") >> 12) + 0.5) / (1 << 52)


def _prefix(prompt: Prompt) -> Iterator[str]:
    """What stays the same from turn to turn. What the user said first tells most, so it is looked
    at first; then the rest as far as it is worth the time."""
    left = _MOST
    for text in _stable(prompt):
        yield text[:left]
        left -= len(text)
        if left <= 0:
            return


def _stable(prompt: Prompt) -> Iterator[str]:
    opening = next((turn for turn in prompt.turns if turn.role not in _SYSTEM), None)
    if opening is not None and opening.role is Role.USER:
        yield from (part.text for part in opening.parts if isinstance(part, Text))
    for turn in prompt.turns:
        if turn is opening:
            break
        for part in turn.parts:
            if isinstance(part, Text) and not _ROTATING.match(part.text):
                yield part.text
    for tool in prompt.tools:
        yield tool.name
        yield tool.description or ""


def _previous_message(prompt: Prompt) -> str | None:
    if prompt.extra is None:
        return None
    pocket = prompt.extra.data
    thread = pocket.get("thread") if isinstance(pocket, dict) else None
    previous = thread.get("previous_message_id") if isinstance(thread, dict) else None
    return previous if isinstance(previous, str) else None


def _digest(*texts: str) -> bytes:
    whole = "\0".join(text[:_MOST] for text in texts).encode(errors="surrogatepass")
    return blake2b(whole, digest_size=_BYTES).digest()
