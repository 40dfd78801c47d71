"""The clients that can be replayed."""

from __future__ import annotations

from typing import Final

from gateway.doctor.anthropic_sdk import ANTHROPIC
from gateway.doctor.chat_clients import AIDER, CURSOR, OPENCODE
from gateway.doctor.claude_code import CLAUDE_CODE
from gateway.doctor.codex import CODEX
from gateway.doctor.openai_sdk import OPENAI
from gateway.doctor.replay import Profile

PROFILES: Final[dict[str, Profile]] = {
    profile.name: profile
    for profile in (CLAUDE_CODE, CODEX, OPENCODE, CURSOR, AIDER, OPENAI, ANTHROPIC)
}
