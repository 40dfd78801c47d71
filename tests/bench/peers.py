"""Other gateways, to compare with: how they are configured and started.

Each lives in an environment of its own, `var/peers/NAME`, which the Makefile makes. `pairs` has
the pairs of formats that the peer really translates, as its replies show.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.bench.samples import FORMATS
from tests.bench.servers import ENDPOINTS, UPSTREAM_KEY, Server, model_of, running
from tests.support.server_process import free_port

ROLTER_KEY = "sk-rolter-bench"
ROLTER_KINDS = {"chat": "openai_compatible", "messages": "anthropic", "responses": "openai"}
# It never translates to responses: other clients reach the chat endpoint of such a provider.
ROLTER_PAIRS = frozenset(
    (client, upstream)
    for client in FORMATS
    for upstream in FORMATS
    if upstream != "responses" or client == "responses"
)
ROLTER = """\
[server]
host = "127.0.0.1"
port = {port}

[[virtual_keys]]
key = "{key}"
name = "bench"
models = []
disabled = false
"""
ROLTER_ROUTE = """
[[providers]]
name = "{endpoint}"
kind = "{kind}"
api_base = "http://127.0.0.1:{upstream_port}/{endpoint}"
allow_custom_api_base = true
api_key_env = "{key_variable}"

[[routes]]
model = "{model}"
strategy = "round_robin"
[[routes.targets]]
provider = "{endpoint}"
model = "upstream"
"""


def render_rolter(port: int, upstream_port: int) -> str:
    """One provider and one route for each endpoint of the upstream."""
    parts = [ROLTER.format(port=port, key=ROLTER_KEY)]
    parts += [
        ROLTER_ROUTE.format(
            endpoint=endpoint,
            kind=ROLTER_KINDS[wire],
            upstream_port=upstream_port,
            key_variable=UPSTREAM_KEY,
            model=model_of(endpoint),
        )
        for endpoint, wire in ENDPOINTS.items()
    ]
    return "".join(parts)


@contextmanager
def rolter(folder: Path, upstream: Server, core: int | None, program: Path) -> Iterator[Server]:
    port = free_port()
    config = folder / "rolter.toml"
    config.write_text(render_rolter(port, upstream.port))
    with running(
        [str(program), "gateway", "--config", str(config)],
        folder / "rolter.log",
        f"http://127.0.0.1:{port}/readyz",
        core,
        environment={"ROLTER_UPDATE_CHECK": "false", "RUST_LOG": "error"},
    ) as process:
        yield Server("rolter", process, port, ROLTER_KEY, pairs=ROLTER_PAIRS)


LITELLM_KEY = "sk-litellm-bench"
# How its model names choose the endpoint of the provider.
LITELLM_PREFIXES = {"chat": "hosted_vllm", "messages": "anthropic", "responses": "openai/responses"}
# It answers 500 to the other pair. Its responses streams have no event lines and fail the check.
LITELLM_PAIRS = frozenset(
    (client, upstream)
    for client in FORMATS
    for upstream in FORMATS
    if (client, upstream) != ("responses", "chat")
)


def render_litellm(upstream_port: int) -> str:
    return yaml.safe_dump(
        {
            "model_list": [
                {
                    "model_name": model_of(endpoint),
                    "litellm_params": {
                        "model": f"{LITELLM_PREFIXES[wire]}/upstream",
                        "api_base": f"http://127.0.0.1:{upstream_port}/{endpoint}"
                        + ("" if wire == "messages" else "/v1"),
                        "api_key": "sk-upstream",
                    },
                }
                for endpoint, wire in ENDPOINTS.items()
            ],
            "litellm_settings": {"num_retries": 0, "telemetry": False},
            "router_settings": {"disable_cooldowns": True},
            "general_settings": {"master_key": LITELLM_KEY},
        }
    )


@contextmanager
def litellm(folder: Path, upstream: Server, core: int | None, program: Path) -> Iterator[Server]:
    port = free_port()
    config = folder / "litellm.yaml"
    config.write_text(render_litellm(upstream.port))
    command = [str(program), "--config", str(config), "--host", "127.0.0.1", "--port", f"{port}"]
    with running(
        [*command, "--telemetry", "False"],
        folder / "litellm.log",
        f"http://127.0.0.1:{port}/health/readiness",
        core,
        environment={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"},
        start_seconds=120.0,
    ) as process:
        yield Server("litellm", process, port, LITELLM_KEY, pairs=LITELLM_PAIRS)


PEERS = {"rolter": rolter, "litellm": litellm}


def program_of(name: str, folder: Path) -> Path:
    """The program of a peer. SystemExit where it is not installed."""
    program = Path(os.environ.get(f"{name.upper()}_PROGRAM", folder / name / "bin" / name))
    if not program.exists():
        raise SystemExit(f"{program} does not exist: run make bench PEER={name}")
    return program


@contextmanager
def peer(
    name: str, folder: Path, upstream: Server, core: int | None, installed: Path
) -> Iterator[Server]:
    with PEERS[name](folder, upstream, core, program_of(name, installed)) as server:
        yield server
