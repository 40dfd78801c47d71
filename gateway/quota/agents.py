"""Which clients may call, by what they call themselves. It must not know whose list it is, nor
whether others are refused or only watched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from gateway.config import REGEX, AgentExpression, agent_expression


@dataclass(frozen=True, slots=True)
class Agents:
    """A list of user agents: beginnings, and regular expressions that are looked for anywhere in
    them. Case counts in both."""

    beginnings: tuple[str, ...]
    expressions: tuple[AgentExpression, ...]

    @classmethod
    def of(cls, patterns: Sequence[str] | None) -> Self:
        """The list as it is written (`gateway.config.check_agent`); None allows every agent, an
        empty one none."""
        written = ("",) if patterns is None else patterns
        return cls(
            tuple(each for each in written if not each.startswith(REGEX)),
            tuple(agent_expression(each) for each in written if each.startswith(REGEX)),
        )

    def allows(self, agent: str) -> bool:
        """Whether the agent is on the list; "" is a client that does not say what it is."""
        if agent.startswith(self.beginnings):
            return True
        if not self.expressions:
            return False
        told = agent.encode("utf-8", "replace").decode()  # headers may hold what is no text
        return any(each.search(told) for each in self.expressions)
