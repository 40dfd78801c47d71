"""Finds and loads the configuration file, and finds the state directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic_core import to_json

from gateway.config.cluster import DatabaseServer, SharedServer
from gateway.config.discovered import read_discovered
from gateway.config.document import MAX_SIZE, ConfigError, read_document
from gateway.config.file_errors import file_error_reason
from gateway.config.schema import Config, default_catalog
from gateway.config.secrets import SecretResolver
from gateway.config.validation import validate
from gateway.core.formats import Format

SYSTEM_CONFIG: Final = Path("/etc/gateway/channels.yaml")
LOCAL_CONFIG: Final = Path("config/channels.yaml")
_DEFAULT_PATHS: Final = (LOCAL_CONFIG, SYSTEM_CONFIG)
_OTHERS_CAN_READ: Final = 0o044


def find_config(flag: Path | None = None, env: Mapping[str, str] = os.environ) -> Path | None:
    """The configuration file: the flag, else $GATEWAY_CONFIG, else the first default path that
    exists or cannot be seen. Whether a file can be read is checked by `load_config`."""
    if flag is not None:
        return flag
    if path := env.get("GATEWAY_CONFIG"):
        return Path(path)
    return next((path for path in _DEFAULT_PATHS if _may_be_file(path)), None)


def _may_be_file(path: Path) -> bool:
    try:
        return path.is_file()
    except PermissionError:
        return True


def load_config(
    path: Path | None,
    *,
    state_dir: Path | None = None,
    resolve_secrets: bool = True,
    env: Mapping[str, str] = os.environ,
) -> Config:
    """The configuration of the file that `find_config` found; raises ConfigError. `state_dir` is
    the flag of that name. Without `resolve_secrets` keys are the references as written."""
    if path is None:
        paths = " or ".join(map(str, _DEFAULT_PATHS))
        raise ConfigError.at(paths, 0, "no configuration file: name one, --config")
    raw, shared = _read(path)
    document = read_document(raw, str(path))
    data = document.data = {} if document.data is None else document.data
    if isinstance(data, dict) and isinstance(data.get("state_dir", ""), str):
        # the effective directory takes the place of the file's own, so that it is validated
        data["state_dir"] = str(_choose_state_dir(state_dir, data, env))
    secrets = SecretResolver(env, allow_literals=not shared) if resolve_secrets else None
    discovered = read_discovered(_choose_state_dir(state_dir, data, env))
    return validate(document, secrets, discovered)


def parse_config(
    text: str, name: str = "<text>", *, secrets: SecretResolver | None = None
) -> Config:
    """The configuration in `text`, called `name` in problems; raises ConfigError."""
    return validate(read_document(text.encode(), name), secrets)


def find_state_dir(
    flag: Path | None, config: Path | None, env: Mapping[str, str] = os.environ
) -> Path:
    """The state directory for commands that need nothing else: the flag, $GATEWAY_STATE_DIR, the
    file's own `state_dir`, $STATE_DIRECTORY, else `var`.

    `config` is what `find_config` found. The file is read only where it decides, and is not
    validated; raises ConfigError where it cannot be read.
    """
    data = None
    if config is not None and not (flag or env.get("GATEWAY_STATE_DIR")):
        data = read_document(_read(config)[0], str(config)).data
    return _choose_state_dir(flag, data, env)


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
    raw, readable = _read(config)
    document = read_document(raw, str(config))
    data = document.data if isinstance(document.data, dict) else {}
    document.data = {name: data[name] for name in ("database", "shared") if data.get(name)}
    if not document.data:
        return None, None
    found = validate(document, SecretResolver(env, allow_literals=not readable))
    return found.database, found.shared


def _choose_state_dir(flag: Path | None, data: Any, env: Mapping[str, str]) -> Path:
    configured = data.get("state_dir") if isinstance(data, dict) else None
    if not isinstance(configured, str):
        configured = None
    by_systemd = env.get("STATE_DIRECTORY", "").partition(":")[0]  # several are joined by colons
    return Path(flag or env.get("GATEWAY_STATE_DIR") or configured or by_systemd or "var")


def _read(path: Path) -> tuple[bytes, bool]:
    """The file's bytes, and whether users other than its owner may read it."""
    try:
        with path.open("rb") as file:
            shared = bool(os.fstat(file.fileno()).st_mode & _OTHERS_CAN_READ)
            return file.read(MAX_SIZE + 1), shared
    except OSError as error:
        raise ConfigError.at(
            str(path), 0, f"cannot be read: {file_error_reason(error, path)}"
        ) from None


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
