"""Session affinity: a conversation stays on one account, so that prompt caches hit."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import inf, log
from typing import Final, NamedTuple

from multidict import istr

from gateway.core.formats import Format
from gateway.core.parts import Text
from gateway.core.prompt import Prompt, Role, agent_session_id
from gateway.core.value import FastStrEnum
from gateway.routing.health import AccountRef

Member = tuple[AccountRef, float]
"""An account and its weight; weight 0 comes last."""

_MAX_CHARS: Final = 64 * 1024
"""Characters of a prompt or an identifier."""
_DIGEST_SIZE: Final = 16
_CAPACITY: Final = 50_000
_SYSTEM_ROLES: Final = (Role.SYSTEM, Role.DEVELOPER)
_VOLATILE_SYSTEM_TEXT: Final = re.compile(r"x-[a-z]+-billing-header:")
"""The beginning of a system text of some agents that changes with every request."""


class AffinitySource(FastStrEnum):
    """The identification of a conversation."""

    CACHE_KEY = "prompt_cache_key"
    PREVIOUS_RESPONSE = "previous_response_id"
    USER = "session of the user"
    HEADER = "session header"
    PREVIOUS_MESSAGE = "thread.previous_message_id"
    PREFIX = "prompt prefix"


_CHAIN_SOURCES: Final = (AffinitySource.PREVIOUS_RESPONSE, AffinitySource.PREVIOUS_MESSAGE)


@dataclass(slots=True, eq=False)
class Affinity:
    """`key` is the same for all requests of a conversation; `account_ref` is the account of the
    previous reply, if the request refers to one: only that upstream may have its state. The key is
    computed on first use, which a single account never needs."""

    _key_source: bytes | tuple[str, str, str | Prompt]
    """The key; or token id, model, and the identifier or the prompt."""
    source: AffinitySource
    account_ref: AccountRef | None = None

    @property
    def key(self) -> bytes:
        source = self._key_source
        if isinstance(source, tuple):
            token_id, model, identity = source
            texts = (identity,) if isinstance(identity, str) else filter(None, _prefix(identity))
            self._key_source = source = _digest(token_id, model, *texts)
        return source


class RecordedReply(NamedTuple):
    """The key of a reply's conversation, and its account."""

    key: bytes
    account_ref: AccountRef


class AffinityIndex:
    """Identifies conversations; `headers` are header names with a conversation id.

    A chain of replies, in which each request names only the previous reply, is followed through the
    newest `capacity` replies; a longer gap starts a new conversation.
    """

    def __init__(self, headers: Sequence[str] = (), capacity: int = _CAPACITY) -> None:
        self._capacity = capacity
        self._replies: OrderedDict[bytes, RecordedReply] = OrderedDict()
        self.on_record: Callable[[bytes, RecordedReply], None] | None = None
        """Told of each reply of this process, by its digest."""
        self.set_headers(headers)

    def set_headers(self, headers: Sequence[str]) -> None:
        self._headers = tuple(map(istr, headers))

    def for_prompt(
        self, prompt: Prompt, headers: Mapping[str, str], token_id: str, model: str
    ) -> Affinity | None:
        """The affinity of a prompt for the catalog's `model`, per token; None if nothing identifies
        the conversation. `headers` are looked up in lower case."""
        previous_id = prompt.previous_response_id or _previous_message_id(prompt)
        previous = self._replies.get(_digest(token_id, previous_id)) if previous_id else None
        account_ref = previous[1] if previous else None
        source, identity = self._find_source(prompt, headers, follows=previous is not None)
        if previous and source in _CHAIN_SOURCES:
            return Affinity(previous[0], source, account_ref)
        if identity:
            return Affinity((token_id, model, identity), source, account_ref)
        if not any(_stable_texts(prompt)):
            return None
        return Affinity((token_id, model, prompt), AffinitySource.PREFIX)

    def unknown_reply(self, prompt: Prompt, token_id: str) -> bytes | None:
        """The digest of the reply that a prompt names, where it is not known."""
        previous_id = prompt.previous_response_id or _previous_message_id(prompt)
        if not previous_id:
            return None
        digest = _digest(token_id, previous_id)
        return None if digest in self._replies else digest

    def record(
        self, affinity: Affinity, token_id: str, reply_id: str, account_ref: AccountRef
    ) -> None:
        """The account of a reply; `reply_id` is the client's id of it."""
        digest = _digest(token_id, reply_id)
        reply = RecordedReply(affinity.key, account_ref)
        self.adopt(digest, reply)
        if self.on_record is not None:
            self.on_record(digest, reply)

    def record_state(self, token_id: str, state: str, account_ref: AccountRef) -> None:
        """The account of an opaque `state` that only its upstream can read."""
        digest = state_digest(token_id, state)
        reply = RecordedReply(digest, account_ref)
        self.adopt(digest, reply)
        if self.on_record is not None:
            self.on_record(digest, reply)

    def account_of(self, digest: bytes) -> AccountRef | None:
        """The account of a reply or a state, if it is known."""
        recorded = self._replies.get(digest)
        return None if recorded is None else recorded.account_ref

    def adopt(self, digest: bytes, reply: RecordedReply) -> None:
        """Adopts what another process has recorded."""
        self._replies[digest] = reply
        self._replies.move_to_end(digest)
        if len(self._replies) > self._capacity:
            self._replies.popitem(last=False)

    def _find_source(
        self, prompt: Prompt, headers: Mapping[str, str], *, follows: bool
    ) -> tuple[AffinitySource, str | None]:
        """The first source with an identifier. A response that is not known (`follows`) identifies
        nothing: the prompt has the whole conversation, whose start is the same in every turn."""
        if prompt.cache_key:
            return AffinitySource.CACHE_KEY, prompt.cache_key
        if prompt.previous_response_id and follows:
            return AffinitySource.PREVIOUS_RESPONSE, prompt.previous_response_id
        if prompt.user is not None and (session := agent_session_id(prompt.user)):
            return AffinitySource.USER, session
        for name in self._headers:
            if value := headers.get(name):
                return AffinitySource.HEADER, value
        return AffinitySource.PREVIOUS_MESSAGE, _previous_message_id(prompt)


def state_digest(token_id: str, state: str) -> bytes:
    """The digest by which an opaque state is known."""
    return _digest("state", token_id, state)


def continues_conversation(prompt: Prompt) -> bool:
    """Tells whether the prompt has or names an earlier reply."""
    if prompt.previous_response_id or _previous_message_id(prompt):
        return True
    return any(turn.role is Role.ASSISTANT for turn in prompt.turns)


def can_be_continued(prompt: Prompt) -> bool:
    """Tells whether a later prompt can refer to the reply by its id alone, and only its upstream
    knows it."""
    extra = prompt.extra.data if prompt.extra is not None else None
    return prompt.format is Format.MESSAGES and isinstance(extra, dict) and "thread" in extra


def rendezvous_order(
    key: bytes, members: Sequence[Member], first: AccountRef | None = None
) -> list[int]:
    """The indexes of the members by rendezvous hashing of the key, `first` before all others.

    The order is deterministic, each member leads in proportion to its weight, and a member that is
    added or removed moves no key between the others.
    """
    arrivals = [
        -inf if ref == first else _arrival_time(_hash_to_unit(key, ref), weight)
        for ref, weight in members
    ]
    return sorted(range(len(members)), key=arrivals.__getitem__)


def weighted_shuffle(members: Sequence[Member], random_float: Callable[[], float]) -> list[int]:
    """The indexes of the members in weighted random order; `random_float` returns [0, 1)."""
    arrivals = [_arrival_time(1.0 - random_float(), weight) for _, weight in members]
    return sorted(range(len(members)), key=arrivals.__getitem__)


def _arrival_time(uniform: float, weight: float) -> float:
    """Exponentially distributed: each member is first with a probability of its weight."""
    return -log(uniform) / weight if weight > 0 else inf


def _hash_to_unit(key: bytes, ref: AccountRef) -> float:
    """Hashes to a number in (0, 1), both ends excluded."""
    digest = blake2b(key + "\0".join(ref).encode(), digest_size=8).digest()
    return ((int.from_bytes(digest, "big") >> 12) + 0.5) / (1 << 52)


def _prefix(prompt: Prompt) -> Iterator[str]:
    """The texts that stay the same from turn to turn, limited to `_MAX_CHARS`."""
    left = _MAX_CHARS
    for text in _stable_texts(prompt):
        yield text[:left]
        left -= len(text)
        if left <= 0:
            return


def _stable_texts(prompt: Prompt) -> Iterator[str]:
    """The first user turn, which is the most specific; then the system prompt and the tools."""
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
    extra = prompt.extra.data if prompt.extra is not None else None
    thread = extra.get("thread") if isinstance(extra, dict) else None
    previous = thread.get("previous_message_id") if isinstance(thread, dict) else None
    return previous if isinstance(previous, str) else None


def _digest(*texts: str) -> bytes:
    joined = "\0".join(text[:_MAX_CHARS] for text in texts).encode(errors="surrogatepass")
    return blake2b(joined, digest_size=_DIGEST_SIZE).digest()
