"""How each format says it: `whole` and `frames` of one answer, and the errors between."""

from tests.sdk.tongues import chat, messages, responses

__all__ = ["chat", "messages", "responses"]
