"""Where the configuration and the state directory are. It must not know what a mistake is, only
that every one of them is raised at once.

The configuration of a demonstration: a simulated upstream behind one channel for each format.

It must not know how the simulator is started.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic_core import to_json

from gateway.config.catalog import default_models
from gateway.config.document import MAX_SIZE, ConfigError, ConfigProblem, Document, read_document
from gateway.config.schema import Config
from gateway.config.secrets import SecretResolver
from gateway.config.validation import validate
from gateway.core.formats import Format

_DEFAULT_PATHS: Final = (Path("config/channels.yaml"), Path("/etc/gateway/channels.yaml"))
_OTHERS_CAN_READ: Final = 0o044  # readable by group or others


def find_config(flag: Path | None = None, env: Mapping[str, str] = os.environ) -> Path | None:
    """The configuration file: the flag, else $GATEWAY_CONFIG, else the first usual place that
    has one. A file that is named is not checked for being there: `load_config` says so."""
    if flag is not None:
        return flag
    if named := env.get("GATEWAY_CONFIG"):
        return Path(named)
    return next((path for path in _DEFAULT_PATHS if path.is_file()), None)


def load_config(
    path: Path | None,
    *,
    state_dir: Path | None = None,
    resolve_secrets: bool = True,
    env: Mapping[str, str] = os.environ,
) -> Config:
    """The configuration of the file that `find_config` found; raises ConfigMistakes.

    `state_dir` is the flag of that name. Without `resolve_secrets` an account's key is the
    reference as it is written.
    """
    if path is None:
        looked = " or ".join(map(str, _DEFAULT_PATHS))
        raise ConfigError(
            [ConfigProblem("", looked, 0, "no configuration file: name one, --config")]
        )
    raw, shared = _read(path)
    document = read_document(raw, str(path))
    _resolve_state_dir(document, state_dir, env)
    return validate(
        document, SecretResolver(env, allow_literals=not shared) if resolve_secrets else None
    )


def parse_config(
    text: str, name: str = "<text>", *, secrets: SecretResolver | None = None
) -> Config:
    """The configuration in `text`, called `name` in mistakes; raises ConfigMistakes."""
    return validate(read_document(text.encode(), name), secrets)


def find_state_dir(
    flag: Path | None, config: Path | None, env: Mapping[str, str] = os.environ
) -> Path:
    """The state directory for commands that need nothing else: the flag, $GATEWAY_STATE_DIR, the
    file's own `state_dir`, $STATE_DIRECTORY, else `var`.

    `config` is what `find_config` found. The file is read only where it decides; then raises
    ConfigMistakes where it cannot be read, but is not judged any further.
    """
    if (named := _explicit_state_dir(flag, env)) is None and config is not None:
        named = _state_dir_from_file(read_document(_read(config)[0], str(config)))
    return named or _default_state_dir(env)


def _resolve_state_dir(document: Document, flag: Path | None, env: Mapping[str, str]) -> None:
    """Put the directory that counts where the file's own would stand, so that it is checked."""
    data = document.data = {} if document.data is None else document.data
    if isinstance(data, dict) and isinstance(data.get("state_dir", ""), str):
        data["state_dir"] = str(
            _explicit_state_dir(flag, env)
            or _state_dir_from_file(document)
            or _default_state_dir(env)
        )


def _explicit_state_dir(flag: Path | None, env: Mapping[str, str]) -> Path | None:
    return flag or _to_path(env.get("GATEWAY_STATE_DIR"))


def _state_dir_from_file(document: Document) -> Path | None:
    written = document.data.get("state_dir") if isinstance(document.data, dict) else None
    return _to_path(written) if isinstance(written, str) else None


def _default_state_dir(env: Mapping[str, str]) -> Path:
    # systemd joins several directories with colons
    return _to_path(env.get("STATE_DIRECTORY", "").partition(":")[0]) or Path("var")


def _to_path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _read(path: Path) -> tuple[bytes, bool]:
    """The file's bytes, and whether others than its owner may read it."""
    try:
        with path.open("rb") as file:
            shared = bool(os.fstat(file.fileno()).st_mode & _OTHERS_CAN_READ)
            return file.read(MAX_SIZE + 1), shared
    except OSError as error:
        mistake = ConfigProblem("", str(path), 0, f"cannot be read: {error.strerror}")
        raise ConfigError([mistake]) from None


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
