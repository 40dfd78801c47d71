"""Key references, rejected keys, and that no key is ever shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config.document import ConfigError
from gateway.config.load import load_config
from gateway.config.schema import Config

CANARY = "sk-canary-7f3a9c"


def write(path: Path, key: str, mode: int = 0o600) -> Path:
    file = path / "channels.yaml"
    file.write_text(
        "channels:\n"
        "- {name: c, format: chat, base_url: http://host/v1, models: [beta-5.4], accounts: [\n"
        f'  {{name: a1, key: "{key}"}}]}}\n'
    )
    file.chmod(mode)
    return file


def key_of(config: Config) -> str:
    return config.channels[0].accounts[0].key.get_secret_value()


def key_problem(file: Path, env: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(file, env=env)
    (problem,) = caught.value.problems
    assert (problem.line, problem.path) == (3, "channels[0].accounts[0].key")
    assert CANARY not in str(caught.value)
    return problem.text


def test_key_from_environment(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "${CHAT_KEY}", 0o644), env={"CHAT_KEY": CANARY})
    assert key_of(config) == CANARY
    assert CANARY not in repr(config) + str(config.model_dump()) + config.model_dump_json()


def test_an_upstream_without_a_key(tmp_path: Path) -> None:
    """It was refused as a literal key, with a hint about chmod."""
    assert key_of(load_config(write(tmp_path, "none", 0o644), env={})) == ""


@pytest.mark.parametrize("env", [{}, {"CHAT_KEY": ""}])
def test_a_missing_variable_is_named(tmp_path: Path, env: dict[str, str]) -> None:
    file = write(tmp_path, "${CHAT_KEY}")
    assert key_problem(file, env) == "the environment variable CHAT_KEY is not set"


def test_key_from_file(tmp_path: Path) -> None:
    secret = tmp_path / "key"
    secret.write_text(f"{CANARY}\n")
    assert key_of(load_config(write(tmp_path, f"file:{secret}", 0o644), env={})) == CANARY


def test_key_from_credentials_directory(tmp_path: Path) -> None:
    (tmp_path / "chat-main").write_text(CANARY)
    file = write(tmp_path, "file:chat-main")
    assert key_of(load_config(file, env={"CREDENTIALS_DIRECTORY": str(tmp_path)})) == CANARY
    assert "$CREDENTIALS_DIRECTORY is unset" in key_problem(file, {})


def test_unreadable_key_file(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert key_problem(write(tmp_path, f"file:{missing}"), {}) == (
        f"cannot read {missing}: No such file or directory"
    )
    assert key_problem(write(tmp_path, f"file:{tmp_path}"), {}).endswith("Is a directory")


def test_literal_key_needs_a_private_file(tmp_path: Path) -> None:
    assert key_of(load_config(write(tmp_path, CANARY), env={})) == CANARY
    for mode in (0o640, 0o604, 0o644):
        assert "chmod 600" in key_problem(write(tmp_path, CANARY, mode), {})


@pytest.mark.parametrize("text", ["Bearer ${KEY}", "${KEY:-x}", "$KEY", "${sk-canary-7f3a9c}"])
def test_malformed_reference(tmp_path: Path, text: str) -> None:
    assert key_problem(write(tmp_path, text), {"KEY": CANARY}).startswith(
        "a reference is the whole"
    )


@pytest.mark.parametrize("key", ["", " ", "two words", "sk-\u00e9", "line\nline"])
def test_invalid_key(tmp_path: Path, key: str) -> None:
    secret = tmp_path / "key"
    secret.write_text(key)
    assert key_problem(write(tmp_path, f"file:{secret}"), {}).startswith("the key is empty or has")


@pytest.mark.parametrize(
    "sample",
    [
        "sk-your-key",
        "sk-your_api_key",
        "YOUR-KEY-HERE",
        "sk-key-here",
        "changeme",
        "change-me",
        "sk-placeholder-1",
        "<api-key>",
        "sk-xxxxxxxx",
        "sk-...",
        "sk-",
        "sk-example",
        "replace-me",
    ],
)
def test_sample_keys_are_rejected(tmp_path: Path, sample: str) -> None:
    assert key_problem(write(tmp_path, sample), {}) == "this is a sample, not a key"
    assert key_problem(write(tmp_path, "${KEY}"), {"KEY": sample}) == "this is a sample, not a key"


@pytest.mark.parametrize("key", ["sk-Wx0000tHere9xxxx4Your", "local", "a" * 200])
def test_keys_that_resemble_samples(tmp_path: Path, key: str) -> None:
    assert key_of(load_config(write(tmp_path, key), env={})) == key


def test_unresolved_reference(tmp_path: Path) -> None:
    for text in ("${UNSET}", "file:/nowhere", CANARY, "sk-your-key"):
        config = load_config(write(tmp_path, text, 0o644), resolve_secrets=False, env={})
        assert key_of(config) == text


def with_headers(path: Path, *headers: str, mode: int = 0o644) -> Path:
    """A channel with one header on each line from line 8 on."""
    file = path / "channels.yaml"
    file.write_text(
        "channels:\n- name: c\n  format: chat\n  base_url: http://host/v1\n"
        '  models: [beta-5.4]\n  accounts: [{name: a1, key: "${CHAT_KEY}"}]\n  headers:\n'
        + "".join(f"    {header}\n" for header in headers)
    )
    file.chmod(mode)
    return file


def headers_of(config: Config) -> dict[str, str]:
    headers = config.channels[0].headers
    return {name: value.get_secret_value() for name, value in headers.items()}


def header_problems(file: Path, **env: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(file, env={"CHAT_KEY": "k", **env})
    assert CANARY not in str(caught.value)
    return [f"{each.line} {each.path}: {each.text}" for each in caught.value.problems]


def test_headers_are_resolved_and_hidden(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{CANARY}-2\n")
    lines = ('X-Api-Token: "${TOKEN}"', f"x-gate: file:{secret}", "x-team: the blue one")
    config = load_config(
        with_headers(tmp_path, *lines), env={"CHAT_KEY": "k", "TOKEN": f"Bearer {CANARY}"}
    )
    assert headers_of(config) == {
        "x-api-token": f"Bearer {CANARY}",
        "x-gate": f"{CANARY}-2",
        "x-team": "the blue one",
    }
    assert CANARY not in repr(config) + str(config.model_dump()) + config.model_dump_json()


@pytest.mark.parametrize(
    "name",
    ["x-goog-api-key", "X-Token", "client-secret", "proxy-authorization", "x-password", "Cookie"],
)
def test_literal_header_secret_needs_a_private_file(tmp_path: Path, name: str) -> None:
    line = f"{name}: {CANARY}"
    for mode in (0o640, 0o604, 0o644):
        (problem,) = header_problems(with_headers(tmp_path, line, mode=mode))
        assert problem.startswith(
            f"8 channels[0].headers.{name}: a literal key is accepted only in"
        )
    private = load_config(with_headers(tmp_path, line, mode=0o600), env={"CHAT_KEY": "k"})
    assert headers_of(private) == {name.lower(): CANARY}


def test_all_header_problems(tmp_path: Path) -> None:
    lines = (
        'x-a: "of ${A}"',
        'x-b: "${B}"',
        f"x-key: {CANARY}",
        "x-c: 7",
        'x-d: "${D}"',
        "host: x",
    )
    file = with_headers(tmp_path, *lines, 'x-e: "${E}"')
    assert header_problems(file, D=f"{CANARY}\nx-evil: 1", E="your-token-here") == [
        "8 channels[0].headers.x-a: a reference is the whole text ${NAME}: letters, digits and _",
        "9 channels[0].headers.x-b: the environment variable B is not set",
        "10 channels[0].headers.x-key: a literal key is accepted only in a file that only its "
        "owner can read (chmod 600), else write ${NAME} or file:/path",
        "11 channels[0].headers.x-c: must be text: put it in quotes",
        "12 channels[0].headers.x-d: the value is empty or has characters that no header has",
        "13 channels[0].headers.host: the gateway sets this header itself",
        "14 channels[0].headers.x-e: this is a sample, not a secret",
    ]


def test_unresolved_headers(tmp_path: Path) -> None:
    file = with_headers(tmp_path, 'x-token: "${UNSET}"', f"x-key: {CANARY}")
    config = load_config(file, resolve_secrets=False, env={})
    assert headers_of(config) == {"x-token": "${UNSET}", "x-key": CANARY}
