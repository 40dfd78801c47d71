"""Precedence of configuration files and state directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config.document import ConfigError
from gateway.config.load import load_config
from gateway.config.locate import MAX_SOCKET_PATH, SOCKET_NAME, find_config, find_state_dir


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "channels.yaml") -> Path:
    file = Path(name)
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


def test_config_file_precedence() -> None:
    assert find_config(None, {}) in (None, Path("/etc/gateway/channels.yaml"))
    usual = write("", "config/channels.yaml")
    assert find_config(None, {}) == usual
    assert find_config(None, {"GATEWAY_CONFIG": "named.yaml"}) == Path("named.yaml")
    assert find_config(Path("flag.yaml"), {"GATEWAY_CONFIG": "named.yaml"}) == Path("flag.yaml")


def test_no_file() -> None:
    with pytest.raises(ConfigError, match="no configuration file: name one, --config"):
        load_config(None)


def test_missing_file() -> None:
    with pytest.raises(ConfigError, match=r"^gone\.yaml: cannot be read: No such file or dir"):
        load_config(Path("gone.yaml"))


def test_empty_file_has_defaults() -> None:
    config = load_config(write("# nothing\n"), env={})
    assert (config.server.host, config.server.port) == ("127.0.0.1", 8080)
    assert config.state_dir == Path("var")
    assert config.warnings == ("No channels: the gateway starts, but no request can be served.",)


def test_byte_order_mark_is_accepted() -> None:
    assert load_config(write("\ufeffserver: {port: 1}"), env={}).server.port == 1


@pytest.mark.parametrize(
    ("flag", "env", "configured", "expected"),
    [
        ("flag", {"GATEWAY_STATE_DIR": "env", "STATE_DIRECTORY": "unit"}, "file", "flag"),
        (None, {"GATEWAY_STATE_DIR": "env", "STATE_DIRECTORY": "unit"}, "file", "env"),
        (None, {"STATE_DIRECTORY": "unit"}, "file", "file"),
        (None, {"STATE_DIRECTORY": "/a:/b"}, None, "/a"),
        (None, {"GATEWAY_STATE_DIR": "", "STATE_DIRECTORY": ""}, None, "var"),
    ],
)
def test_state_dir_precedence(
    flag: str | None, env: dict[str, str], configured: str | None, expected: str
) -> None:
    file = write(f"state_dir: {configured}" if configured else "")
    path = Path(flag) if flag else None
    assert find_state_dir(path, file, env) == Path(expected)
    assert load_config(file, state_dir=path, env=env).state_dir == Path(expected)


def test_state_dir_of_an_invalid_file() -> None:
    assert find_state_dir(None, write("state_dir: here\nnonsense: 1"), {}) == Path("here")
    assert find_state_dir(None, None, {}) == Path("var")
    assert find_state_dir(Path("flag"), Path("gone.yaml"), {}) == Path("flag")
    with pytest.raises(ConfigError):
        find_state_dir(None, Path("gone.yaml"), {})


def test_admin_socket_path_length() -> None:
    longest = "d" * (MAX_SOCKET_PATH - len(f"/{SOCKET_NAME}"))
    assert load_config(write(f"state_dir: {longest}"), env={}).state_dir == Path(longest)
    too_long = Path(longest + "d")
    with pytest.raises(ConfigError, match="would have 108 bytes, 107 are allowed"):
        load_config(write(""), state_dir=too_long, env={})
    assert find_state_dir(too_long, None, {}) == too_long
