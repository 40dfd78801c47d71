"""The package installs and serves with each other version of Python that its classifiers name."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.checks.interpreters import claimed_versions, other_interpreters
from tests.resilience.chaos.process import GatewayProcess
from tests.support.gateway import ALPHA, BETA
from tests.support.paths import ROOT


@pytest.mark.slow("installs the package with its dependencies")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", claimed_versions())
def test_the_demo_answers_clients_in_every_format(version: str, tmp_path: Path) -> None:
    interpreter = other_interpreters().get(version)
    if interpreter is None:
        pytest.skip(f"Python {version} is this one, or is not on this machine")
    python, tree = tmp_path / "venv" / "bin" / "python", tmp_path / "tree"
    # Building in the checkout would leave files there, also those of the other version.
    shutil.copytree(ROOT / "gateway", tree / "gateway")
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    subprocess.run([interpreter, "-m", "venv", tmp_path / "venv"], check=True)
    install = ("-m", "pip", "install", "--quiet", "--no-input", "--no-compile", tree)
    subprocess.run([python, *install], check=True, timeout=280)
    with GatewayProcess(tmp_path, "--demo", "--port", "0", python=python, PYTHONPATH="") as gateway:
        gateway.wait_for_output("Ctrl-C stops it.")
        (key,) = re.findall(r"^key: (sk-\S+)$", gateway.stdout, re.MULTILINE)
        openai = OpenAI(base_url=f"{gateway.address()}/v1", api_key=key, max_retries=0)
        anthropic = Anthropic(base_url=gateway.address(), api_key=key, max_retries=0)
        turns = [{"role": "user", "content": "Hello"}]
        with openai, anthropic:
            chunks = [*openai.chat.completions.create(model=BETA, messages=turns, stream=True)]
            assert chunks[-1].choices[0].finish_reason == "stop"
            message = anthropic.messages.create(model=ALPHA, max_tokens=100, messages=turns)
            assert message.content[0].text
            assert openai.responses.create(model=BETA, input="Hello").output_text
