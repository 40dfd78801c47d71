"""A model to talk to before there is one: it answers in all three formats over real HTTP.

It stands beside the house and must not know it: sharing a codec would repeat the codec's faults,
and whoever tests against the simulator would not see them.
"""

from __future__ import annotations

from .endpoints import build_simulator

__all__ = ["build_simulator"]
