"""How long things may take where tests run on a machine that is busy with something else."""

from __future__ import annotations

from typing import Final

SLACK: Final = 10.0
"""Seconds by which a busy machine may be late with anything. What a test must tell apart from being
late has to take longer than that."""
