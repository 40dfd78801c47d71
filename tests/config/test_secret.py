"""Where keys come from, what is refused as one, and that none is ever shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import Config, ConfigMistakes, load_config

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
    with pytest.raises(ConfigMistakes) as caught:
        load_config(file, env=env)
    (mistake,) = caught.value.mistakes
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
