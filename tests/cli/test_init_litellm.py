"""`gateway init --from`: what is taken over of a LiteLLM proxy's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main
from gateway.config.load import load_config
from gateway.config.locate import LOCAL_CONFIG
from gateway.config.schema import Config
from tests.cli.cli_runner import CommandRunner

SECRET = "sk-of-the-vendor-4711"
ENVIRONMENT = {f"{name}_KEY": "secret" for name in ("A", "B")} | {"ANTHROPIC_API_KEY": "secret"}
FILE = """
model_list:
  - model_name: large
    litellm_params: {model: openai/large-2026, api_key: os.environ/A_KEY, timeout: 300}
    model_info: {input_cost_per_token: 0.0000025, output_cost_per_token: 1e-05, max_input_tokens: 9}
  - model_name: large
    litellm_params: {model: azure/east, api_base: "https://x.example.org/",
                     api_key: os.environ/B_KEY, weight: 3, order: 2, max_parallel_requests: 8}
  - model_name: claude
    litellm_params: {model: anthropic/claude-x, api_key: sk-of-the-vendor-4711}
  - model_name: yes-and-no
    litellm_params: {model: hosted_vllm/q/q, api_base: "http://127.0.0.1:1/v1"}
  - {model_name: small, litellm_params: {model: openai/small, api_key: os.environ/A_KEY}}
  - {model_name: small, litellm_params: {model: openai/tiny, api_key: os.environ/A_KEY}}
  - {model_name: "openrouter/*", litellm_params: {model: "openrouter/*", api_key: os.environ/B_KEY}}
  - {model_name: vector, litellm_params: {model: openai/v}, model_info: {mode: embedding}}
  - {model_name: "a\\nb", litellm_params: {model: "other/x"}}
litellm_settings: {fallbacks: [{large: [claude, gone]}], drop_params: true}
router_settings: {model_group_alias: {old-name: large}}
general_settings: {master_key: sk-of-the-vendor-4711}
"""
pytestmark = pytest.mark.usefixtures("shell")


def call(text: str, *arguments: str) -> Result:
    Path("litellm.yaml").write_text(text)
    return CliRunner().invoke(main, ["init", "--from", "litellm.yaml", *arguments])


def written() -> Config:
    return load_config(LOCAL_CONFIG, env=ENVIRONMENT)


def test_channels_models_prices_and_fallbacks_are_taken_over() -> None:
    result = call(FILE)
    assert result.exit_code == 0, result.output
    config = written()
    assert [(c.name, c.format.value, c.base_url, c.models) for c in config.channels][:4] == [
        (
            *("openai", "responses", "https://api.openai.com/v1"),
            {"large": "large-2026", "small": "small"},
        ),
        ("azure", "responses", "https://x.example.org/openai/v1", {"large": "east"}),
        ("anthropic", "messages", "https://api.anthropic.com", {"claude": "claude-x"}),
        ("vllm", "chat", "http://127.0.0.1:1/v1", {"yes-and-no": "q/q"}),
    ]
    azure = config.channels[1]
    assert (azure.weight, azure.priority, azure.accounts[0].concurrency) == (3, -2, 8)
    assert [(c.name, dict(c.models), c.discover) for c in config.channels[4:]] == [
        ("openai-2", {"small": "tiny"}, ()),
        ("openrouter", {}, ("*",)),
    ]
    large = config.models[0]
    assert large.price is not None
    assert (large.price.input, large.price.output, large.context) == (2.5, 10.0, 9)
    assert (large.fallbacks, large.aliases) == (("claude",), ("old-name",))


def test_what_is_left_out_is_named_and_no_secret_is_copied(shell: CommandRunner) -> None:
    assert call(FILE).exit_code == 0
    head = LOCAL_CONFIG.read_text().partition("\nserver:")[0]
    for expected in (
        *("(large): timeout", "(claude): its key", "${ANTHROPIC_API_KEY}", "mode embedding"),
        *("provider other", "fallbacks of large", "litellm_settings: drop_params", "master_key"),
    ):
        assert expected in head
    assert all(line.startswith("#") for line in head.splitlines())
    report: dict[str, Any] = shell.json("init", "--from", "litellm.yaml", "--force")
    assert len(report["left_out"]) == head.count("\n#   - ")
    assert SECRET not in LOCAL_CONFIG.read_text() + str(report)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "litellm.yaml, line 2: this is no YAML"),
        ("[1]", "has no model_list"),
        ("model_list: [1, {litellm_params: 2}]", "no model that can be taken over"),
    ],
)
def test_other_files_are_refused(text: str, message: str) -> None:
    result = call(text)
    assert (result.exit_code, message in result.output) == (1, True), result.output
    assert not LOCAL_CONFIG.exists()
