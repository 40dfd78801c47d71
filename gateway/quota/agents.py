"""Which clients may call, by what they call themselves. It must not know whose list it is, nor
whether others are refused or only watched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from gateway.config import REGEX_PREFIX, CompiledPattern, compile_agent_pattern


@dataclass(frozen=True, slots=True)
class UserAgentList:
    """A list of user agents: beginnings, and regular expressions that are looked for anywhere in
    them. Case counts in both."""

    prefixes: tuple[str, ...]
    expressions: tuple[CompiledPattern, ...]

    @classmethod
    def parse(cls, patterns: Sequence[str] | None) -> Self:
        """The list as it is written (`gateway.config.check_agent`); None allows every agent, an
        empty one none."""
        written = ("",) if patterns is None else patterns
        return cls(
            tuple(each for each in written if not each.startswith(REGEX_PREFIX)),
            tuple(compile_agent_pattern(each) for each in written if each.startswith(REGEX_PREFIX)),
        )

    def allows(self, user_agent: str) -> bool:
        """Whether the agent is on the list; "" is a client that does not say what it is."""
        if user_agent.startswith(self.prefixes):
            return True
        if not self.expressions:
            return False
        text = user_agent.encode("utf-8", "replace").decode()  # headers may hold what is no text
        return any(each.search(text) for each in self.expressions)
