"""Token counts of one reply, with one meaning everywhere. It must not know prices or formats.

`input_tokens` is the whole prompt: cache reads and writes are subsets of it. The messages format
reports the three disjoint, chat and responses report them inclusive; codecs convert at their edge.
"""

from __future__ import annotations

from typing import Final

from gateway.core.value import value

CHARS_PER_TOKEN: Final = 4
"""Of what a model says, where nobody has counted."""


@value(kw_only=True)
class Usage:
    """All counts are language-model tokens, never negative.

    `cache_write_1h_tokens` is the part of `cache_write_tokens` with the one-hour lifetime;
    `reasoning_tokens` is the part of `output_tokens` that was reasoning.
    """

    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    web_searches: int = 0

    @property
    def fresh_input_tokens(self) -> int:
        """The part of the prompt that no cache served or kept."""
        return max(0, self.input_tokens - self.cache_read_tokens - self.cache_write_tokens)

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def is_plausible(self, characters: int, initial: Usage | None) -> bool:
        """Whether a reply of `said` characters can have used this, where `beginning` was told
        before it: some upstreams never count what is said after that, or nothing at all."""
        if self == initial:
            return characters // CHARS_PER_TOKEN <= self.output_tokens
        return bool(self.output_tokens) or not characters

    @classmethod
    def estimated(cls, input_tokens: int, characters: int) -> Usage:
        """Of a reply that nobody has counted; `said` is in characters."""
        output_tokens = max(1, characters // CHARS_PER_TOKEN)
        return cls(input_tokens=input_tokens, output_tokens=output_tokens)
