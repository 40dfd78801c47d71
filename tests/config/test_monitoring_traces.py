"""The options of traces, and what is told where the extra is missing."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.config.document import ConfigError
from gateway.config.load import parse_config
from gateway.config.monitoring import TraceOptions, has_opentelemetry
from gateway.config.secrets import SecretResolver


def parsed(**traces: Any) -> TraceOptions:
    text = orjson.dumps({"traces": traces}).decode()
    options = parse_config(text, secrets=SecretResolver({}, allow_literals=False)).traces
    assert options is not None
    return options


@pytest.mark.parametrize(
    ("endpoint", "used"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
        ("https://collector.test/otlp/v1/traces", "https://collector.test/otlp/v1/traces"),
        (None, None),
    ],
)
def test_endpoints(endpoint: str | None, used: str | None) -> None:
    assert parsed(endpoint=endpoint).endpoint == used


@pytest.mark.parametrize(
    ("traces", "problem"),
    [
        ({"endpoint": "collector:4317"}, "must begin with http:// or https://"),
        ({"endpoint": "http://user:secret@collector"}, "must not carry a user name"),
        ({"sample": 2}, "less than or equal to 1"),
        ({"headers": {"authorization": "${NO_SUCH_VARIABLE}"}}, "NO_SUCH_VARIABLE is not set"),
        ({"headers": {"authorization": "Bearer secret"}}, "a literal key is accepted only"),
    ],
)
def test_errors(traces: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        parsed(**traces)
    assert problem in str(error.value)
    assert "secret" not in str(error.value)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_opentelemetry()

    def find_spec(name: str, package: str | None = None) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("gateway.config.monitoring.find_spec", find_spec)
    with pytest.raises(ConfigError) as error:
        parsed(endpoint="http://127.0.0.1:4318")
    assert "traces: needs OpenTelemetry: pip install 'model-gateway[otel]'" in str(error.value)
