"""How each format says it: `render` and `frames` of one answer, and the errors between."""

from __future__ import annotations

from tests.conformance.format_servers import chat, messages, responses

__all__ = ["chat", "messages", "responses"]
