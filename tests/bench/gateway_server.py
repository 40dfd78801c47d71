"""A gateway under test: its configuration, its keys, its process. It is used as any user would."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.bench.servers import ENDPOINTS, UPSTREAM_KEY, Server, model_of, module, running
from tests.support.paths import ROOT
from tests.support.server_process import STARTUP, free_port


@dataclass(frozen=True, slots=True)
class Checkout:
    """A source tree of the gateway, the name of its column, and sections of its configuration."""

    name: str = "gateway"
    folder: Path = ROOT
    config: Mapping[str, object] = field(default_factory=dict)


Prepare = Callable[[Checkout, Path], None]
"""Gets the configuration file of a gateway before the start."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much a gateway has to hold: the endpoints of the upstream that the load asks for, further
    channels with a model of their own each, and what `prepare` adds."""

    endpoints: tuple[str, ...] = tuple(ENDPOINTS)
    extra_channels: int = 0
    prepare: Prepare | None = None


def render_config(
    folder: Path, port: int, upstream_port: int, size: Size, config: Mapping[str, object]
) -> str:
    """One channel for each endpoint of the upstream, each with a model of its own."""
    endpoints = {name: ENDPOINTS[name] for name in size.endpoints}
    endpoints |= {f"extra{number}": "chat" for number in range(size.extra_channels)}
    return yaml.safe_dump(
        {
            "server": {"host": "127.0.0.1", "port": port},
            "state_dir": str(folder / "state"),
            "models": [
                {"id": model_of(name), "family": "beta", "multiplier": 1.0, "context": 400000}
                for name in endpoints
            ],
            "channels": [
                {
                    "name": name,
                    "format": wire,
                    "base_url": f"http://127.0.0.1:{upstream_port}/{name}"
                    + ("" if wire == "messages" else "/v1"),
                    "models": [model_of(name)],
                    "accounts": [{"name": "a1", "key": f"${{{UPSTREAM_KEY}}}"}],
                }
                for name, wire in endpoints.items()
            ],
            **config,
        },
        sort_keys=False,
    )


def run_command(checkout: Checkout, config: Path, *words: str, seconds: float = 60.0) -> str:
    """What a command of the gateway prints. Raises SystemExit with its error text."""
    command = module("gateway", *words, "--config", str(config))
    done = subprocess.run(
        command, cwd=checkout.folder, capture_output=True, text=True, timeout=seconds
    )
    if done.returncode != 0:
        raise SystemExit(f"gateway {' '.join(words)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class Prepared:
    """A gateway that can be started: its configuration is written and it has a key."""

    checkout: Checkout
    config: Path
    port: int
    key: str


def prepare(folder: Path, upstream: Server, checkout: Checkout, size: Size) -> Prepared:
    """`folder` must not exist yet: it keeps configuration, log and state."""
    folder.mkdir()
    port = free_port()
    config = folder / "gateway.yaml"
    config.write_text(render_config(folder, port, upstream.port, size, checkout.config))
    output = run_command(checkout, config, "key", "mint", "--name", "bench")
    if size.prepare is not None:
        size.prepare(checkout, config)
    return Prepared(checkout, config, port, output.splitlines()[-1].strip())


@contextmanager
def started(prepared: Prepared, core: int | None) -> Iterator[Server]:
    with running(
        module("gateway", "serve", "--config", str(prepared.config)),
        prepared.config.parent / "gateway.log",
        f"http://127.0.0.1:{prepared.port}/readyz",
        core,
        cwd=prepared.checkout.folder,
        start_seconds=2 * STARTUP,
    ) as process:
        yield Server(prepared.checkout.name, process, prepared.port, prepared.key)


@contextmanager
def gateway(
    folder: Path,
    upstream: Server,
    core: int | None,
    checkout: Checkout,
    size: Size = Size(),
) -> Iterator[Server]:
    with started(prepare(folder, upstream, checkout, size), core) as server:
        yield server
