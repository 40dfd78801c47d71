"""Tokens and groups in memory: requests are checked against them without a database read.

Loaded at the start; admin operations that change a token or a group in the database change it here
too, so a change applies from the next request on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice

from gateway.store.database import Reader
from gateway.store.records import Group, Token, TokenState
from gateway.store.tokens import all_groups, all_tokens


class Registry:
    """Active tokens by digest and groups by name; every read is a dict lookup.

    Revoked and disabled tokens are not in here, so a caller cannot forget to check the state. The
    totals of tokens are those at loading. `version` grows whenever a group changes: what is derived
    from groups (models allowed, say) can be kept until then. `on_inactive` are called with the
    id of a token that was disabled or revoked, unless what it runs may go on.
    """

    __slots__ = ("_by_digest", "_groups", "_lent", "_tokens", "on_inactive", "version")

    def __init__(self, tokens: Iterable[Token] = (), groups: Iterable[Group] = ()) -> None:
        self._tokens: dict[str, Token] = {}
        self._by_digest: dict[bytes, Token] = {}
        self._lent: dict[bytes, str] = {}
        self._groups: dict[str, Group] = {group.name: group for group in groups}
        self.version = 0
        self.on_inactive: list[Callable[[str], None]] = []
        for token in tokens:
            self.put_token(token)

    @classmethod
    async def load(cls, database: Reader) -> Registry:
        return cls(await all_tokens(database), await all_groups(database))

    def find(self, digest: bytes) -> Token | None:
        """The active token of a key's SHA-256; None for unknown and revoked keys alike.

        The key may be the previous one of a rotation (`old_digest`): the caller checks whether it,
        or the token, has expired.
        """
        return self._by_digest.get(digest)

    def token(self, token_id: str) -> Token | None:
        """The active token of that id."""
        return self._tokens.get(token_id)

    def tokens(self, limit: int | None = None) -> tuple[Token, ...]:
        """Returns all active tokens, or the first ones up to a limit."""
        return tuple(islice(self._tokens.values(), limit))

    def group(self, name: str) -> Group | None:
        return self._groups.get(name)

    def groups(self) -> tuple[Group, ...]:
        """Returns all groups by name."""
        return tuple(self._groups[name] for name in sorted(self._groups))

    @contextmanager
    def lent(self, token_id: str, digest: bytes) -> Iterator[None]:
        """For the block, another key finds the active token of that id, too."""
        self._by_digest[digest] = self._tokens[token_id]
        self._lent[digest] = token_id
        try:
            yield
        finally:
            del self._by_digest[digest], self._lent[digest]

    def is_lent(self, token_id: str) -> bool:
        """Whether another key finds the token now."""
        return token_id in self._lent.values()

    def put_token(self, token: Token) -> None:
        """Add or replace a token; its earlier keys are no longer found, and neither is it unless it
        is active."""
        self.remove_token(token.id)
        if token.state is TokenState.ACTIVE:
            self._tokens[token.id] = token
            self._by_digest[token.digest] = token
            if token.old_digest is not None:
                self._by_digest[token.old_digest] = token
        elif not token.let_run:
            for end in self.on_inactive:
                end(token.id)

    def put_stored(self, token: Token) -> Token:
        """Adds or replaces a token as `put_token` does, from a row that was read. This replica may
        have seen who uses the token, and not have written it yet: that stays."""
        known = self.token(token.id)
        if known is not None and token.first_used_at is None:
            token = replace(
                token,
                first_used_at=known.first_used_at,
                first_address=known.first_address,
                first_agent=known.first_agent,
            )
        if known is not None and (token.changed_at or 0) < (known.changed_at or 0):
            token = replace(token, changed_at=known.changed_at, changed=known.changed)
        self.put_token(token)
        return token

    def remove_token(self, token_id: str) -> None:
        if (token := self._tokens.pop(token_id, None)) is not None:
            for digest in (token.digest, token.old_digest):
                self._by_digest.pop(digest or b"", None)

    def put_group(self, group: Group) -> None:
        self._groups[group.name] = group
        self.version += 1

    def remove_group(self, name: str) -> None:
        self._groups.pop(name, None)
        self.version += 1
