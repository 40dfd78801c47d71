"""A simulated model that replies in the chat format over HTTP, for the demo and for tests.

It imports no code of the gateway: with a shared codec it would repeat the codec's bugs.
"""

from __future__ import annotations

from .endpoints import build_simulator

__all__ = ["build_simulator"]
