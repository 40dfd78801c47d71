"""Where the project's files are, for tests wherever they lie."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
"""The checkout."""
TESTS: Final = ROOT / "tests"
FIXTURES: Final = TESTS / "fixtures"
PROMPTS: Final = FIXTURES / "prompts"
STREAMS: Final = FIXTURES / "streams"
