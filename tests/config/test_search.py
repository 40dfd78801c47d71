"""The options of the gateway's own web search: problems, and secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config.document import ConfigError
from gateway.config.load import load_config, parse_config

URL = 'url: "http://127.0.0.1:8888/search"'
CANARY = "canary-search-7f3a9c"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("", "search.url: is missing"),
        ('url: "ftp://x/s"', "search.url: must begin with http:// or https://"),
        ('url: "http://h/s?q=1"', "search.url: must not have a query"),
        ('url: "http://u:p@h/s"', "search.url: must not carry a user name or password"),
        (f"{URL}, max_results: 0", "search.max_results: must be greater than or equal to 1"),
        (f"{URL}, max_searches: 101", "search.max_searches: must be less than or equal to 100"),
        (f"{URL}, timeout: 0", "search.timeout: must be greater than 0"),
        (f"{URL}, concurrency: none", "search.concurrency: must be"),
        (f"{URL}, adress: x", "search.adress: unknown key"),
    ],
)
def test_problems(options: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"search: {{{options}}}", "f.yaml")
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"f.yaml:1: {problem}")


def write(tmp_path: Path, options: str, mode: int = 0o644) -> Path:
    file = tmp_path / "channels.yaml"
    file.write_text(f"search: {{{URL}, {options}}}\n")
    file.chmod(mode)
    return file


def test_secrets_are_resolved_and_hidden(tmp_path: Path) -> None:
    options = 'key: "${KEY}", headers: {x-token: "${TOKEN}", x-team: blue}'
    secrets = {"KEY": CANARY, "TOKEN": f"{CANARY}-2"}
    config = load_config(write(tmp_path, options), env=secrets)
    assert config.search is not None and config.search.key is not None
    assert config.search.key.get_secret_value() == CANARY
    assert config.search.headers["x-token"].get_secret_value() == f"{CANARY}-2"
    assert config.search.headers["x-team"].get_secret_value() == "blue"
    assert CANARY not in repr(config) + str(config.model_dump()) + config.model_dump_json()


@pytest.mark.parametrize("options", [f"key: {CANARY}", f"headers: {{x-token: {CANARY}}}"])
def test_a_literal_secret_needs_a_private_file(tmp_path: Path, options: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, options), env={})
    assert "a literal key is accepted only in a file" in str(caught.value)
    assert CANARY not in str(caught.value)
    load_config(write(tmp_path, options, 0o600), env={})


def test_a_secret_that_is_not_set(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, 'key: "${NOPE}"'), env={})
    assert "search.key: the environment variable NOPE is not set" in str(caught.value)
