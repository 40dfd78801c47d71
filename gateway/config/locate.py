"""Finds the configuration file and the state directory. It validates nothing, so that commands
which need no more of the configuration start without what validates it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gateway.config.document import MAX_SIZE, ConfigError, Document, read_document
from gateway.config.file_errors import file_error_reason

SYSTEM_CONFIG: Final = Path("/etc/gateway/channels.yaml")
LOCAL_CONFIG: Final = Path("config/channels.yaml")
DEFAULT_PATHS: Final = (LOCAL_CONFIG, SYSTEM_CONFIG)
SOCKET_NAME: Final = "admin.sock"
"""The admin socket in the state directory."""
MAX_SOCKET_PATH: Final = 107
"""Maximum bytes of a unix socket's path on Linux, without the closing zero."""
_OTHERS_CAN_READ: Final = 0o044


def find_config(flag: Path | None = None, env: Mapping[str, str] = os.environ) -> Path | None:
    """The configuration file: the flag, else $GATEWAY_CONFIG, else the first default path that
    exists or cannot be seen. Whether a file can be read is checked by `load_config`."""
    if flag is not None:
        return flag
    if path := env.get("GATEWAY_CONFIG"):
        return Path(path)
    return next((path for path in DEFAULT_PATHS if _may_be_file(path)), None)


def _may_be_file(path: Path) -> bool:
    try:
        return path.is_file()
    except PermissionError:
        return True


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
        data = read_document(read_file(config)[0], str(config)).data
    return choose_state_dir(flag, data, env)


def read_options(path: Path, *names: str) -> tuple[Document, bool]:
    """Those of the options that the file states, not validated, and whether users other than its
    owner may read the file. Raises ConfigError."""
    raw, is_shared = read_file(path)
    document = read_document(raw, str(path))
    data = document.data if isinstance(document.data, dict) else {}
    document.data = {name: data[name] for name in names if data.get(name)}
    return document, is_shared


def choose_state_dir(flag: Path | None, data: Any, env: Mapping[str, str]) -> Path:
    configured = data.get("state_dir") if isinstance(data, dict) else None
    if not isinstance(configured, str):
        configured = None
    by_systemd = env.get("STATE_DIRECTORY", "").partition(":")[0]  # several are joined by colons
    return Path(flag or env.get("GATEWAY_STATE_DIR") or configured or by_systemd or "var")


def read_file(path: Path) -> tuple[bytes, bool]:
    """The file's bytes, and whether users other than its owner may read it."""
    try:
        with path.open("rb") as file:
            shared = bool(os.fstat(file.fileno()).st_mode & _OTHERS_CAN_READ)
            return file.read(MAX_SIZE + 1), shared
    except OSError as error:
        raise ConfigError.at(
            str(path), 0, f"cannot be read: {file_error_reason(error, path)}"
        ) from None
