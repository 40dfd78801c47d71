"""Real coding agents: their settings and commands, and the errors in what they print."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from tests.support.gateway import ALPHA, BETA

_LIMIT: Final = 150
"""Seconds for one command of an agent."""
_CODEX: Final = """\
model = "{model}"
model_auto_compact_token_limit = 18000
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
{provider}
[analytics]
enabled = false
[feedback]
enabled = false
"""
_NAMED: Final = """\
model_provider = "gateway"
[model_providers.gateway]
name = "{name}"
base_url = "{address}/v1"
wire_api = "responses"
env_key = "GATEWAY_KEY"
"""
_CLAUDE: Final = {
    "ANTHROPIC_MODEL": ALPHA,
    "ANTHROPIC_SMALL_FAST_MODEL": ALPHA,
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_MAX_RETRIES": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
}
_COMPACTS_ITSELF: Final = {
    "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000",
    "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "52",
}


@dataclass
class Output:
    """What a session's commands have said: `errors` of the gateway that the agent knows of, also
    where it has tried again."""

    texts: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class Agent(Protocol):
    """`home` is a folder of its own, `clients` where npm has installed it."""

    async def ask(self, prompt: str, number: int) -> None:
        """Goes on with the session; `number` counts its prompts from 0."""


@dataclass
class Place:
    """Where a session is."""

    work: Path
    home: Path
    clients: Path
    address: str
    key: str
    output: Output = field(default_factory=Output)

    async def run(
        self, program: str, arguments: Sequence[str], variables: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        """The events that a command prints. It never runs where it could reach more than the
        gateway: only in a network that has nothing but loopback."""
        if [name for _, name in socket.if_nameindex()] != ["lo"]:
            raise RuntimeError("an agent has to have a network of its own")
        process = await asyncio.create_subprocess_exec(
            str(self.clients / "node_modules" / ".bin" / program),
            *arguments,
            cwd=self.work,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), **variables},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), _LIMIT)
        except TimeoutError:
            process.kill()
            self.output.errors.append(f"{program} did not end")
            return []
        with (self.home / "log").open("ab") as log:
            log.write(out + err)
        if process.returncode:
            self.output.errors.append(f"exit {process.returncode}: {err.decode()[-500:]}")
        return list(map(orjson.loads, out.splitlines()))


@dataclass
class Codex:
    """`name`: that of a provider of the file; None: the built-in provider."""

    place: Place
    name: str | None

    def __post_init__(self) -> None:
        provider = f'openai_base_url = "{self.place.address}/v1"'
        if self.name:
            provider = _NAMED.format(name=self.name, address=self.place.address)
        (self.place.home / "config.toml").write_text(_CODEX.format(model=BETA, provider=provider))

    async def ask(self, prompt: str, number: int) -> None:
        """As `Agent`."""
        place = self.place
        keys = dict.fromkeys(("GATEWAY_KEY", "CODEX_API_KEY"), place.key)
        resume = ("resume", "--last") if number else ()
        arguments = ("exec", *resume, "--skip-git-repo-check", "--json", prompt)
        for event in await place.run("codex", arguments, keys | {"CODEX_HOME": str(place.home)}):
            item = event.get("item", {})
            if event["type"] in ("error", "turn.failed"):
                place.output.errors.append(orjson.dumps(event).decode())
            elif item.get("type") == "error" and "Model metadata" not in item["message"]:
                place.output.errors.append(item["message"])
            elif item.get("type") == "agent_message":
                place.output.texts.append(item["text"])


@dataclass
class ClaudeCode:
    place: Place

    async def ask(self, prompt: str, number: int) -> None:
        """As `Agent`."""
        place = self.place
        variables = {"ANTHROPIC_BASE_URL": place.address, "ANTHROPIC_AUTH_TOKEN": place.key}
        if number == 4:
            variables |= _COMPACTS_ITSELF
        go_on = ["--continue"] if number else []
        output = ("--output-format", "stream-json", "--verbose")
        arguments = ("-p", prompt, *go_on, *output, "--allowedTools", "Bash")
        for event in await place.run("claude", arguments, variables | _CLAUDE):
            self._read(event, place.output)

    def _read(self, event: dict[str, Any], output: Output) -> None:
        kind = event["type"], event.get("subtype")
        if kind == ("system", "api_retry") or event.get("is_error"):
            output.errors.append(orjson.dumps(event).decode())
        elif kind[0] == "assistant":
            content: Iterable[dict[str, Any]] = event["message"]["content"]
            output.texts += [part["text"] for part in content if part["type"] == "text"]
