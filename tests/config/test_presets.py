"""Channels of a platform: what its preset completes, and what is said where that is not enough."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.config.channel import Channel
from gateway.config.document import ConfigError
from gateway.config.load import parse_config
from gateway.config.presets import platform_hint, presets
from gateway.config.schema import Config, default_catalog
from tests.support.cases import in_one_test

FORMATS = [(name, format) for name, preset in presets().items() for format in preset["formats"]]


def configured(*channels: dict[str, Any], **others: Any) -> Config:
    return parse_config(orjson.dumps({"channels": channels, **others}).decode())


def problem_of(*channels: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as error:
        configured(*channels)
    problems = error.value.problems
    assert len(problems) == 1, problems
    (problem,) = problems
    return f"{problem.path}: {problem.text}"


def only(config: Config) -> Channel:
    (channel,) = config.channels
    return channel


@in_one_test(("name", "format"), FORMATS, ids=lambda value: value)
def test_every_preset_is_a_channel_in_each_of_its_formats(name: str, format: str) -> None:
    stated = {"preset": name, "format": format, "models": ["model-1"]}
    if "example" in presets()[name]:
        stated["base_url"] = "https://own.example" + ("" if format == "messages" else "/v1")
    if "variable" in presets()[name]:
        stated["accounts"] = [{"name": "main", "key": "${KEY}"}]
    config = configured(stated)
    channel = only(config)
    assert (channel.name, channel.format.value) == (name, format)
    assert channel.base_url.startswith("https://" if "variable" in presets()[name] else "http://")
    assert config.models[-1].id == "model-1"
    assert config.models[-1].family is channel.family


def test_a_local_server_needs_its_models_alone() -> None:
    (account,) = only(configured({"preset": "ollama", "models": ["llama3.2"]})).accounts
    assert (account.name, account.key.get_secret_value()) == ("main", "none")


def test_what_the_channel_states_itself_wins() -> None:
    stated = {
        "preset": "deepseek",
        "name": "deep",
        "base_url": "http://127.0.0.1:9000/v1",
        "family": "alpha",
        "traits": {"developer": True},
        "models": {"public": "upstream"},
        "accounts": [{"name": "a", "key": "${KEY}"}],
    }
    config = configured(stated)
    channel = only(config)
    assert (channel.name, channel.base_url) == ("deep", "http://127.0.0.1:9000/v1")
    assert (channel.traits.developer, channel.traits.plain_max_tokens) == (True, True)
    assert (config.models[-1].id, config.models[-1].family) == ("public", "alpha")


def test_models_of_the_catalog_stay_as_they_are() -> None:
    known = [{"id": "model-1", "family": "beta", "multiplier": 3, "aliases": ["one"]}]
    local = {"preset": "vllm", "format": "messages", "models": ["model-1", "model-2"]}
    found = configured(local, models=known).models
    assert [(model.id, model.family, model.multiplier) for model in found] == [
        ("model-1", "beta", 3),
        ("model-2", "alpha", 1),
    ]
    assert configured({"preset": "vllm", "models": ["beta-5.4"]}).models == default_catalog()
    plain = {"name": "v", "format": "chat", "base_url": "http://127.0.0.1:1/v1", "models": ["m"]}
    assert "no such model" in problem_of(plain | {"accounts": [{"name": "a", "key": "none"}]})


@pytest.mark.parametrize(
    ("stated", "problem"),
    [
        ({"preset": "olama"}, "channels[0].preset: no such preset; did you mean ollama?"),
        ({"preset": "gemini", "format": "messages"}, "channels[0].format: gemini has chat"),
        (
            {"preset": "claude-aws", "accounts": [{"name": "a", "key": "${KEY}"}]},
            "channels[0].base_url: is missing: of claude-aws it is "
            "https://aws-external-anthropic.REGION.api.aws",
        ),
        ({"preset": "openai"}, "channels[0].accounts: is missing"),
        (
            {"preset": "ollama", "stream_path": "/x"},
            "channels[0]: stream_path needs path",
        ),
        (
            {"preset": "ollama", "path": "/{model}", "params": {"model": "other"}},
            "channels[0]: params: model can only be removed",
        ),
        (
            {"preset": "ollama", "path": "/{id}"},
            "channels[0].path: has characters that are not accepted here, or is too long",
        ),
    ],
)
def test_what_is_wrong_is_said(stated: dict[str, Any], problem: str) -> None:
    assert problem_of({"models": ["m"], **stated}) == problem


@pytest.mark.parametrize(
    ("preset", "error", "hint"),
    [
        ("azure", '{"error":{"code":"DeploymentNotFound","message":"no"}}', "that of a deployment"),
        ("foundry", "Principal does not have required permission", 'role "Cognitive Services'),
        ("bedrock", '{"message":"Signature expired: 20261124T1 is now earlier than"}', "the clock"),
        ("bedrock", "The request signature we calculated does not match", "secret key"),
        ("claude-aws", "The security token included in the request is invalid.", "access key id"),
        ("bedrock", "User: arn:x is not authorized to perform: bedrock:InvokeModel", "permission"),
        ("bedrock", "Invocation with on-demand throughput isn't supported", "inference profile"),
        (
            "vertex",
            "Permission 'aiplatform.endpoints.predict' denied on resource",
            "Vertex AI User",
        ),
        ("vertex-gemini", "Publisher Model `x` was not found or your project", "Model Garden"),
        ("azure", "another error", None),
        ("openai", "DeploymentNotFound", None),
        (None, "DeploymentNotFound", None),
    ],
)
def test_errors_of_a_platform_have_a_hint_in_its_terms(
    preset: str | None, error: str, hint: str | None
) -> None:
    found = platform_hint(preset, error)
    assert found is None if hint is None else hint in str(found)
