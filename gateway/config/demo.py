"""The configuration of a demonstration: a simulated upstream behind one channel for each format.

It must not know how the simulator is started.
"""

from __future__ import annotations

from pathlib import Path

from pydantic_core import to_json

from gateway.config.schema import Config
from gateway.config.shipped import default_models
from gateway.core.formats import Format


def demo_config(simulator_port: int, state_dir: Path) -> Config:
    """Three channels that each have every model of the catalog; the simulator checks no key."""
    address = f"http://127.0.0.1:{simulator_port}"
    models = [model["id"] for model in default_models()]
    channels = [
        {
            "name": f"demo-{format}",
            "format": format,
            "base_url": address if format is Format.MESSAGES else f"{address}/v1",
            "models": models,
            "accounts": [{"name": "demo", "key": "demo"}],
        }
        for format in Format
    ]
    return Config.model_validate_json(to_json({"state_dir": str(state_dir), "channels": channels}))
