"""Other gateways, to compare with: how they are configured and started.

Each lives in an environment of its own, `var/peers/NAME`, which the Makefile makes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.bench.samples import FORMATS
from tests.bench.servers import ENDPOINTS, UPSTREAM_KEY, Server, model_of, running
from tests.support.server_process import STARTUP, free_port

KEY = "sk-bench"
"""Of the clients."""


@dataclass(frozen=True, slots=True)
class Peer:
    """`pairs` are the pairs of formats that it really translates, as its replies show;
    `{config}` and `{port}` in the arguments are the file that is rendered, and where to serve."""

    render: Callable[[int, int], str]
    config: str
    arguments: str
    ready: str
    pairs: frozenset[tuple[str, str]]
    environment: Mapping[str, str]
    start_seconds: float = STARTUP


ROLTER_KINDS = {"chat": "openai_compatible", "messages": "anthropic", "responses": "openai"}
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
    parts = [ROLTER.format(port=port, key=KEY)]
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


LITELLM_PREFIXES = {"chat": "hosted_vllm", "messages": "anthropic", "responses": "openai/responses"}
"""How its model names choose the endpoint of the provider."""


def render_litellm(_: int, upstream_port: int) -> str:
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
            "general_settings": {"master_key": KEY},
        }
    )


PAIRS = frozenset((client, upstream) for client in FORMATS for upstream in FORMATS)
PEERS = {
    "rolter": Peer(
        render_rolter,
        "rolter.toml",
        "gateway --config {config}",
        "/readyz",
        # Other clients reach the chat endpoint of a provider of responses.
        PAIRS - {("chat", "responses"), ("messages", "responses")},
        {"ROLTER_UPDATE_CHECK": "false", "RUST_LOG": "error"},
    ),
    "litellm": Peer(
        render_litellm,
        "litellm.yaml",
        "--config {config} --host 127.0.0.1 --port {port} --telemetry False",
        "/health/readiness",
        # It answers 500. Its responses streams have no event lines and fail the check.
        PAIRS - {("responses", "chat")},
        {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"},
        start_seconds=120.0,
    ),
}


@contextmanager
def peer(
    name: str, folder: Path, upstream: Server, core: int | None, installed: Path
) -> Iterator[Server]:
    """SystemExit where it is not installed."""
    program = Path(os.environ.get(f"{name.upper()}_PROGRAM", installed / name / "bin" / name))
    if not program.exists():
        raise SystemExit(f"{program} does not exist: run make bench PEER={name}")
    peer, port, config = PEERS[name], free_port(), folder / PEERS[name].config
    config.write_text(peer.render(port, upstream.port))
    arguments = [word.format(config=config, port=port) for word in peer.arguments.split()]
    with running(
        [str(program), *arguments],
        folder / f"{name}.log",
        f"http://127.0.0.1:{port}{peer.ready}",
        core,
        environment=peer.environment,
        start_seconds=peer.start_seconds,
    ) as process:
        yield Server(name, process, port, KEY, pairs=peer.pairs)
