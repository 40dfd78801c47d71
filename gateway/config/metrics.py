"""Options of the metrics at /metrics."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, SecretStr

from gateway.config.secrets import resolve_key
from gateway.config.types import ConfigModel


class MetricsSettings(ConfigModel):
    """Metrics for Prometheus at /metrics."""

    enabled: bool = True
    """Whether they are counted and served."""
    token: Annotated[SecretStr, AfterValidator(resolve_key)] | None = None
    """The bearer token that every reader needs then; a reference or the token itself, as for
    accounts. null: readers on this machine need none, and others get nothing."""
    keys: bool = False
    """Whether requests, tokens, units and limits of each key are series of their own."""
