"""Loads the configuration file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic_core import to_json

from gateway.config.cluster import DatabaseServer, SharedServer
from gateway.config.discovered import read_discovered
from gateway.config.document import ConfigError, read_document
from gateway.config.locate import DEFAULT_PATHS, choose_state_dir, read_file, read_options
from gateway.config.schema import Config, default_catalog
from gateway.config.secrets import SecretResolver
from gateway.config.validation import validate
from gateway.core.formats import Format


def load_config(
    path: Path | None,
    *,
    state_dir: Path | None = None,
    resolve_secrets: bool = True,
    env: Mapping[str, str] = os.environ,
    content: bytes | None = None,
) -> Config:
    """The configuration of the file that `find_config` found; raises ConfigError. `state_dir` is
    the flag of that name. Without `resolve_secrets` keys are the references as written. `content`
    is what the file would have instead of its own."""
    if path is None:
        paths = " or ".join(map(str, DEFAULT_PATHS))
        raise ConfigError.at(paths, 0, "no configuration file: name one, --config")
    raw, shared = read_file(path)
    document = read_document(raw if content is None else content, str(path))
    data = document.data = {} if document.data is None else document.data
    if isinstance(data, dict) and isinstance(data.get("state_dir", ""), str):
        # the effective directory takes the place of the file's own, so that it is validated
        data["state_dir"] = str(choose_state_dir(state_dir, data, env))
    secrets = SecretResolver(env, allow_literals=not shared) if resolve_secrets else None
    discovered = read_discovered(choose_state_dir(state_dir, data, env))
    return validate(document, secrets, discovered)


def parse_config(
    text: str, name: str = "<text>", *, secrets: SecretResolver | None = None
) -> Config:
    """The configuration in `text`, called `name` in problems; raises ConfigError."""
    return validate(read_document(text.encode(), name), secrets)


def find_database(
    config: Path | None, env: Mapping[str, str] = os.environ
) -> DatabaseServer | None:
    """The database server for commands that need nothing else of the file; None for SQLite.

    `config` is what `find_config` found. Only this option is validated, and its secrets resolved;
    raises ConfigError.
    """
    return find_servers(config, env)[0]


def find_servers(
    config: Path | None, env: Mapping[str, str] = os.environ
) -> tuple[DatabaseServer | None, SharedServer | None]:
    """`database` and `shared`, as `find_database` reads them."""
    if config is None:
        return None, None
    document, is_shared = read_options(config, "database", "shared")
    if not document.data:
        return None, None
    found = validate(document, SecretResolver(env, allow_literals=not is_shared))
    return found.database, found.shared


def demo_config(simulator_port: int, state_dir: Path) -> Config:
    """Build a configuration of one channel, to a simulated upstream that has all models of the
    default catalog and checks no key."""
    channel = {
        "name": "demo",
        "format": Format.CHAT,
        "base_url": f"http://127.0.0.1:{simulator_port}/v1",
        "models": [model.id for model in default_catalog()],
        "accounts": [{"name": "demo", "key": "demo"}],
    }
    fields = {"state_dir": str(state_dir), "channels": [channel]}
    return Config.model_validate_json(to_json(fields))
