"""The examples of docs/clients.md, run as they are written.

Those of the OpenAI and Anthropic SDKs for Python and of curl always run; others where their
libraries are installed: for JavaScript in the `node_modules` of the folder that
GATEWAY_JAVASCRIPT names.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from gateway.cli import doctor as doctor_command
from gateway.doctor.clients.profile import CLIENTS as REPLAYED_CLIENTS
from tests.support.gateway import RunningGateway
from tests.support.paths import ROOT
from tests.support.snippets import PAGE_ADDRESS, snippet

pytestmark = pytest.mark.timeout(90)

PAGE = (ROOT / "docs" / "clients.md").read_text()
PYTHON = {
    "OpenAI SDK": ("openai",),
    "Anthropic SDK": ("anthropic",),
    "LangChain": ("langchain_openai", "langchain_anthropic"),
    "LiteLLM": ("litellm",),
}
JAVASCRIPT = ("OpenAI SDK", "Anthropic SDK", "Vercel AI SDK")
FOLDER = os.environ.get("GATEWAY_JAVASCRIPT", "")
CLIENTS = (
    *("Claude Code", "Codex", "opencode", "Cursor", "Cline", "aider", "Zed"),
    *("OpenAI SDK", "Anthropic SDK", "LangChain", "Vercel AI SDK", "LiteLLM", "llm", "curl"),
)
WORDS = "standing in for"
"""Of the simulator's reply."""


async def run(gateway: RunningGateway, folder: Path, *command: str) -> str:
    """The output of a program that ended without an error."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "GATEWAY_KEY": gateway.key},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            output, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        raise
    assert process.returncode == 0, errors.decode()
    return output.decode()


@pytest.mark.processes
@pytest.mark.parametrize("section", PYTHON)
async def test_python(simulated_gateway: RunningGateway, tmp_path: Path, section: str) -> None:
    for module in PYTHON[section]:
        if find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    file = tmp_path / "example.py"
    file.write_text(snippet(section, "python", simulated_gateway.address))
    output = await run(simulated_gateway, tmp_path, sys.executable, "-I", str(file))
    assert output.count(WORDS) == 2


@pytest.mark.skipif(not FOLDER, reason="GATEWAY_JAVASCRIPT names no folder with node_modules")
@pytest.mark.parametrize("section", JAVASCRIPT)
async def test_javascript(simulated_gateway: RunningGateway, tmp_path: Path, section: str) -> None:
    (tmp_path / "node_modules").symlink_to(Path(FOLDER, "node_modules").absolute())
    file = tmp_path / "example.mjs"
    file.write_text(snippet(section, "javascript", simulated_gateway.address))
    node = shutil.which("node", path=f"{FOLDER}/node_modules/.bin:{os.environ['PATH']}")
    assert node is not None
    assert WORDS in await run(simulated_gateway, tmp_path, node, str(file))


async def test_curl(simulated_gateway: RunningGateway, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    script = snippet("curl", "sh", simulated_gateway.address)
    output = await run(simulated_gateway, tmp_path, "sh", "-e", "-c", script)
    assert output.count(WORDS) == 2
    assert "event: message_stop" in output
    assert '"object":"list"' in output


def test_every_client_has_a_section_and_a_check() -> None:
    sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
    assert set(CLIENTS) == set(sections) - {"What all clients have in common"}
    for name in CLIENTS:
        checks = re.findall(r"gateway doctor --client ([a-z-]+)", sections[name])
        assert checks, name
        assert set(checks) <= set(REPLAYED_CLIENTS), name
        settings = re.findall(r"```|`http", sections[name])
        assert settings, name


def test_settings_have_the_address_of_the_page() -> None:
    found = set(re.findall(r"http://[\w.:]+", PAGE))
    assert found == {PAGE_ADDRESS}


def test_yaml_and_json_settings_can_be_read() -> None:
    blocks = re.findall(r"^```(?:yaml|json)\n(.*?)^```$", PAGE, re.M | re.S)
    assert len(blocks) == 3
    assert all(yaml.safe_load(block) for block in blocks)


def test_the_command_offers_every_profile() -> None:
    option = next(each for each in doctor_command.doctor.params if each.name == "client")
    assert list(option.type.to_info_dict()["choices"]) == list(REPLAYED_CLIENTS)
