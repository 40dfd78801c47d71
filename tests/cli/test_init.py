"""`gateway init`: what it asks and writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main
from gateway.config.load import load_config
from gateway.config.locate import LOCAL_CONFIG
from tests.cli.cli_runner import CommandRunner

SECRET = "sk-of-the-vendor-4711"
ANSWERS = ("--format", "chat", "--url", "https://chat.example.org/v1", "--model", "small")
KEY = ("--key", "${CHAT_KEY}")
VARIABLES = (
    *("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"),
    *("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL"),
)
pytestmark = pytest.mark.usefixtures("shell")


def call(*arguments: str, typed: str = "", **environment: str) -> Result:
    cleared: dict[str, str | None] = dict.fromkeys(VARIABLES)
    env = cleared | environment
    return CliRunner().invoke(main, ["init", *arguments], input=typed, env=env)


def channels(file: str | Path = LOCAL_CONFIG, **environment: str) -> list[dict[str, Any]]:
    """The file as the gateway loads it, with its secrets."""
    config = load_config(Path(file), env=environment)
    assert config.warnings == ()
    return [
        {
            "name": channel.name,
            "format": channel.format.value,
            "base_url": channel.base_url,
            "models": [*channel.models],
            "keys": [account.key.get_secret_value() for account in channel.accounts],
        }
        for channel in config.channels
    ]


def test_options_answer_everything(shell: CommandRunner) -> None:
    result = call(*ANSWERS, *KEY, "--model", "large", "--state-dir", "here: #it")
    assert result.exit_code == 0, result.output
    assert channels(CHAT_KEY=SECRET) == [
        {
            "name": "main",
            "format": "chat",
            "base_url": "https://chat.example.org/v1",
            "models": ["small", "large"],
            "keys": [SECRET],
        }
    ]
    assert load_config(LOCAL_CONFIG, resolve_secrets=False).state_dir == Path("here: #it")
    lines = [line.strip() for line in result.output.splitlines()[1:]]
    assert [line.split()[1] for line in lines] == ["check", "key", "serve"]
    assert shell("check").exit_code == 78  # the variable is not set
    env = {"CHAT_KEY": SECRET}
    assert CliRunner().invoke(main, lines[0].split()[1:], env=env).exit_code == 0


def test_what_is_missing_is_asked_for() -> None:
    typed = "messages\nhttps://messages.example.org\nclaude-large claude-small\n${KEY}\n"
    result = call("--config", "new/gateway.yaml", typed=typed)
    assert result.exit_code == 0, result.output
    (channel,) = channels("new/gateway.yaml", KEY=SECRET)
    assert channel["format"] == "messages"
    assert channel["models"] == ["claude-large", "claude-small"]


@pytest.mark.parametrize(
    ("arguments", "typed", "found"),
    [
        (("ollama",), "llama3.2\n", ("chat", "http://127.0.0.1:11434/v1", "")),
        (("vllm", "--model", "all"), "", ("chat", "http://127.0.0.1:8000/v1", "")),
        (("gemini", "--model", "m"), "", ("chat", "https://generativelanguage", SECRET)),
        (
            ("azure", "--format", "chat", "--model", "m"),
            "https://r.openai.azure.com/openai/v1\n",
            ("chat", "https://r.openai.azure.com/openai/v1", SECRET),
        ),
    ],
)
def test_a_preset_is_asked_for_what_it_leaves_open(
    arguments: tuple[str, ...], typed: str, found: tuple[str, str, str]
) -> None:
    result = call("--preset", *arguments, typed=typed)
    assert result.exit_code == 0, result.output
    (channel,) = channels(GEMINI_API_KEY=SECRET, AZURE_OPENAI_API_KEY=SECRET)
    assert channel["name"] == arguments[0]
    assert (channel["format"], channel["keys"]) == (found[0], [found[2]])
    assert channel["base_url"].startswith(found[1])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--preset", "olama"), "--preset: it is one of openai, "),
        (("--preset", "gemini", "--format", "messages"), "--format: gemini has chat."),
        (("--preset", "openai", "--from-env"), "--from-env finds preset"),
    ],
)
def test_a_preset_that_does_not_fit(arguments: tuple[str, ...], problem: str) -> None:
    result = call(*arguments)
    assert (result.exit_code, LOCAL_CONFIG.exists()) == (2, False)
    assert problem in result.output


@pytest.mark.parametrize(
    ("typed", "missing"),
    [
        ("", "--format"),
        ("chat\n", "--url"),
        ("chat\nhttp://x/v1\n", "--model"),
        ("chat\nhttp://x/v1\nm\n", "--key"),
    ],
)
def test_input_that_ends_early_is_told_what_is_missing(typed: str, missing: str) -> None:
    result = call(typed=typed)
    assert result.exit_code == 2
    assert f"The input has ended: give {missing} as well." in result.output
    assert not LOCAL_CONFIG.exists()


def test_a_typed_key_is_asked_for_again_and_not_repeated() -> None:
    result = call(*ANSWERS, typed=f"{SECRET}\nfile:/run/key\n")
    assert result.exit_code == 0, result.output
    assert "file:/path" in result.output
    assert SECRET not in LOCAL_CONFIG.read_text()
    assert "file:/run/key" in LOCAL_CONFIG.read_text()


def test_variables_of_the_environment_are_references() -> None:
    environment = {
        "OPENAI_API_KEY": SECRET,
        "OPENAI_MODEL": "gpt-large",
        "ANTHROPIC_API_KEY": f"{SECRET}-2",
        "ANTHROPIC_BASE_URL": "https://messages.example.org/v1",
        "ANTHROPIC_MODEL": "claude-large",
    }
    result = call("--from-env", **environment)
    assert result.exit_code == 0, result.output
    assert SECRET not in LOCAL_CONFIG.read_text() + result.output
    openai, anthropic = channels(**environment)
    assert (openai["format"], openai["keys"]) == ("responses", [SECRET])
    assert (anthropic["format"], anthropic["keys"]) == ("messages", [f"{SECRET}-2"])
    assert anthropic["base_url"] == "https://messages.example.org"


def test_without_a_model_the_upstream_is_asked_for_them() -> None:
    assert call("--from-env", OPENAI_API_KEY=SECRET).exit_code == 0
    assert "models: all\n" in LOCAL_CONFIG.read_text()
    assert SECRET not in LOCAL_CONFIG.read_text()


def test_another_server_of_the_same_interface_has_chat() -> None:
    environment = {"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": "http://127.0.0.1:8000/v1"}
    assert call("--from-env", "--model", "local", **environment).exit_code == 0
    (channel,) = channels(**environment)
    assert (channel["format"], channel["base_url"]) == ("chat", "http://127.0.0.1:8000/v1")


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "message"),
    [
        ((*ANSWERS, "--key", SECRET), {}, 2, "a reference is needed"),
        (("--from-env",), {}, 2, "Neither OPENAI_API_KEY nor ANTHROPIC_API_KEY is set"),
        (
            ("--from-env", "--model", "m"),
            {"OPENAI_API_KEY": SECRET, "ANTHROPIC_API_KEY": SECRET},
            2,
            "set OPENAI_MODEL and ANTHROPIC_MODEL",
        ),
        (("--from-env", *KEY), {}, 2, "--from-env finds"),
        ((*ANSWERS[:2], "--url", "chat.example.org", "--model", "m", *KEY), {}, 78, "base_url"),
        ((*ANSWERS, *KEY, "--config", "file/channels.yaml"), {}, 1, "cannot be written"),
        (ANSWERS[:2], {}, 2, "give --url as well"),
    ],
)
def test_refused(
    arguments: tuple[str, ...], environment: dict[str, str], code: int, message: str
) -> None:
    Path("file").touch()
    result = call(*arguments, **environment)
    assert (result.exit_code, message in result.output) == (code, True), result.output
    assert SECRET not in result.output
    assert not LOCAL_CONFIG.exists()


def test_a_file_is_overwritten_only_if_forced(shell: CommandRunner) -> None:
    file = LOCAL_CONFIG
    file.parent.mkdir()
    file.write_text("mine")
    result = call(*ANSWERS, *KEY)
    assert (result.exit_code, file.read_text()) == (1, "mine")
    assert "--force" in result.output
    assert shell.json("init", *ANSWERS, *KEY, "--force")["channels"][0]["models"] == ["small"]
    assert channels(CHAT_KEY=SECRET)


def test_the_file_of_the_environment(tmp_path: Path) -> None:
    result = call(*ANSWERS, *KEY, GATEWAY_CONFIG=str(tmp_path / "other.yaml"))
    assert result.exit_code == 0, result.output
    assert channels(str(tmp_path / "other.yaml"), CHAT_KEY=SECRET)
