"""scripts/local-model as an operator meets it: what it prints and how it ends.

Must not know what the model says.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
import yaml

from .conftest import SCRIPT, printed_channels, running

pytestmark = pytest.mark.local_model


def run_script(*arguments: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *python, str(SCRIPT), *arguments]
    return subprocess.run(command, text=True, capture_output=True, timeout=30)


def test_help_needs_no_package() -> None:
    done = run_script("--help", python=("-S",))
    assert done.returncode == 0
    assert "--port" in done.stdout


def test_missing_packages_are_named_with_their_extra() -> None:
    done = run_script(python=("-S",))
    assert done.returncode == 1
    assert done.stdout == ""
    assert "model-gateway[local]" in done.stderr
    assert "xllamacpp" in done.stderr


def test_is_executable() -> None:
    assert os.access(SCRIPT, os.X_OK)


def test_prints_one_channel_per_format(channels: str) -> None:
    document = yaml.safe_load(channels)
    assert [model["id"] for model in document["models"]] == ["beta-local"]
    ends = {channel["format"]: channel["base_url"] for channel in document["channels"]}
    assert set(ends) == {"chat", "messages", "responses"}
    assert ends["chat"] == ends["responses"] == f"{ends['messages']}/v1"
    for channel in document["channels"]:
        assert list(channel["models"]) == ["beta-local"]
        assert [account["key"] for account in channel["accounts"]] == ["${LOCAL_MODEL_KEY}"]


def test_requires_the_given_key(channels: str, model_key: str) -> None:
    assert model_key not in channels
    address = next(
        channel["base_url"]
        for channel in yaml.safe_load(channels)["channels"]
        if channel["format"] == "messages"
    )
    with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
        assert answer.status == 200
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{address}/v1/chat/completions", data=b"{}", timeout=5)
    assert refused.value.code == 401
    refused.value.close()


def test_reports_a_port_in_use(channels: str) -> None:
    taken = channels.rsplit("http://127.0.0.1:", 1)[1].split(";", 1)[0]
    done = run_script("--port", taken)
    assert done.returncode == 1
    assert done.stdout == ""
    assert taken in done.stderr


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM], ids=lambda end: end.name)
@pytest.mark.usefixtures("local_packages")
def test_exits_cleanly_on_a_signal(end: signal.Signals) -> None:
    with running([sys.executable, SCRIPT, "--port", "0"], stdout=subprocess.PIPE) as process:
        printed_channels(process)
        process.send_signal(end)
        assert process.wait(timeout=15) == 0
