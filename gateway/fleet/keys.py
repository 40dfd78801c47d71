"""Puts changed keys, groups and disabled accounts into the memory of a running gateway."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.runtime import Runtime
from gateway.store.database import Reader
from gateway.store.settings import load_disabled
from gateway.store.tokens import all_groups, all_tokens, tokens_by_id


class KeyAppliers:
    """Methods of which each is an `Apply` of `fleet.changes`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def tokens(self, database: Reader, ids: Sequence[str] | None) -> None:
        registry = self._runtime.registry
        if ids is None:
            tokens = await all_tokens(database)
            gone = {token.id for token in registry.tokens()} - {token.id for token in tokens}
        else:
            tokens = await tokens_by_id(database, ids)
            gone = set(ids) - {token.id for token in tokens}
        for token in tokens:
            registry.put_stored(token)
        for token_id in gone:
            registry.remove_token(token_id)

    async def groups(self, database: Reader, names: Sequence[str] | None) -> None:
        registry = self._runtime.registry
        groups = {group.name: group for group in await all_groups(database)}
        for group in groups.values():
            if registry.group(group.name) != group:
                registry.put_group(group)
        for group in registry.groups():
            if group.name not in groups:
                registry.remove_group(group.name)

    async def accounts(self, database: Reader, names: Sequence[str] | None) -> None:
        self._runtime.replace_disabled(await load_disabled(database))
