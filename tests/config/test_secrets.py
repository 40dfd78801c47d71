"""Where keys come from, what is refused as one, and that none is ever shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import Config, ConfigError, load_config

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


def refusal(file: Path, env: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(file, env=env)
    (mistake,) = caught.value.problems
    assert (mistake.line, mistake.path) == (3, "channels[0].accounts[0].key")
    assert CANARY not in str(caught.value)
    return mistake.text


def test_from_the_environment(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "${CHAT_KEY}", 0o644), env={"CHAT_KEY": CANARY})
    assert key_of(config) == CANARY
    assert CANARY not in repr(config) + str(config.model_dump()) + config.model_dump_json()


@pytest.mark.parametrize("env", [{}, {"CHAT_KEY": ""}])
def test_a_missing_variable_is_named(tmp_path: Path, env: dict[str, str]) -> None:
    file = write(tmp_path, "${CHAT_KEY}")
    assert refusal(file, env) == "the environment variable CHAT_KEY is not set"


def test_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "key"
    secret.write_text(f"{CANARY}\n")
    assert key_of(load_config(write(tmp_path, f"file:{secret}", 0o644), env={})) == CANARY


def test_from_the_credentials_directory(tmp_path: Path) -> None:
    (tmp_path / "chat-main").write_text(CANARY)
    file = write(tmp_path, "file:chat-main")
    assert key_of(load_config(file, env={"CREDENTIALS_DIRECTORY": str(tmp_path)})) == CANARY
    assert "$CREDENTIALS_DIRECTORY is unset" in refusal(file, {})


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert refusal(write(tmp_path, f"file:{missing}"), {}) == (
        f"cannot read {missing}: No such file or directory"
    )
    assert refusal(write(tmp_path, f"file:{tmp_path}"), {}).endswith("Is a directory")


def test_a_literal_needs_a_private_file(tmp_path: Path) -> None:
    assert key_of(load_config(write(tmp_path, CANARY), env={})) == CANARY
    for mode in (0o640, 0o604, 0o644):
        assert "chmod 600" in refusal(write(tmp_path, CANARY, mode), {})


@pytest.mark.parametrize("written", ["Bearer ${KEY}", "${KEY:-x}", "$KEY", "${sk-canary-7f3a9c}"])
def test_a_reference_is_whole(tmp_path: Path, written: str) -> None:
    assert refusal(write(tmp_path, written), {"KEY": CANARY}).startswith("a reference is the whole")


@pytest.mark.parametrize("key", ["", " ", "two words", "sk-\u00e9", "line\nline"])
def test_what_no_key_has(tmp_path: Path, key: str) -> None:
    secret = tmp_path / "key"
    secret.write_text(key)
    assert refusal(write(tmp_path, f"file:{secret}"), {}).startswith("the key is empty or has")


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
def test_samples_are_refused_from_everywhere(tmp_path: Path, sample: str) -> None:
    assert refusal(write(tmp_path, sample), {}) == "this is a sample, not a key"
    assert refusal(write(tmp_path, "${KEY}"), {"KEY": sample}) == "this is a sample, not a key"


@pytest.mark.parametrize("key", ["sk-Wx0000tHere9xxxx4Your", "none", "local", "a" * 200])
def test_what_only_resembles_a_sample_is_a_key(tmp_path: Path, key: str) -> None:
    assert key_of(load_config(write(tmp_path, key), env={})) == key


def test_without_resolving_the_reference_stays(tmp_path: Path) -> None:
    for written in ("${UNSET}", "file:/nowhere", CANARY, "sk-your-key"):
        config = load_config(write(tmp_path, written, 0o644), resolve_secrets=False, env={})
        assert key_of(config) == written


def with_headers(path: Path, *headers: str, mode: int = 0o644) -> Path:
    """A channel whose headers stand from line 8 on, one on each."""
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


def header_refusals(file: Path, **env: str) -> list[str]:
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
def test_a_literal_in_a_header_that_sounds_like_a_secret(tmp_path: Path, name: str) -> None:
    line = f"{name}: {CANARY}"
    for mode in (0o640, 0o604, 0o644):
        (refused,) = header_refusals(with_headers(tmp_path, line, mode=mode))
        assert refused.startswith(f"8 channels[0].headers.{name}: a key itself may only stand in")
    private = load_config(with_headers(tmp_path, line, mode=0o600), env={"CHAT_KEY": "k"})
    assert headers_of(private) == {name.lower(): CANARY}


def test_every_wrong_header_at_once(tmp_path: Path) -> None:
    lines = (
        'x-a: "of ${A}"',
        'x-b: "${B}"',
        f"x-key: {CANARY}",
        "x-c: 7",
        'x-d: "${D}"',
        "host: x",
    )
    file = with_headers(tmp_path, *lines, 'x-e: "${E}"')
    assert header_refusals(file, D=f"{CANARY}\nx-evil: 1", E="your-token-here") == [
        "8 channels[0].headers.x-a: a reference is the whole text ${NAME}: letters, digits and _",
        "9 channels[0].headers.x-b: the environment variable B is not set",
        "10 channels[0].headers.x-key: a key itself may only stand in a file that nobody but its "
        "owner can read (chmod 600), else write ${NAME} or file:/path",
        "11 channels[0].headers.x-c: must be text: put it in quotes",
        "12 channels[0].headers.x-d: the value is empty or has characters that no header has",
        "13 channels[0].headers.host: the gateway sets this header itself",
        "14 channels[0].headers.x-e: this is a sample, not a secret",
    ]


def test_without_resolving_the_headers_reference_stays(tmp_path: Path) -> None:
    file = with_headers(tmp_path, 'x-token: "${UNSET}"', f"x-key: {CANARY}")
    config = load_config(file, resolve_secrets=False, env={})
    assert headers_of(config) == {"x-token": "${UNSET}", "x-key": CANARY}
