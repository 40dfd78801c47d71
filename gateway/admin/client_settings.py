"""The settings of each client for this gateway, as docs/clients.md has them: shown by the console,
printed or written by `gateway connect`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from gateway.config.schema import Lifecycle, Model
from gateway.routing.catalog import Catalog
from gateway.routing.router import Router

Content = Mapping[str, Any]
"""Settings by name, as a file of the client has them."""

_KEY: Final = "$GATEWAY_KEY"
_CODEX: Final = {"name": "gateway", "wire_api": "responses", "env_key": _KEY[1:]}
_OPENCODE: Final = {"npm": "@ai-sdk/openai-compatible", "name": "Gateway"}


class Settings(NamedTuple):
    """`variables` are for a shell, `content` is for `file`, relative to the home directory: values,
    and objects that other settings share. None removes a value. `start` says how to begin."""

    start: str
    variables: Mapping[str, str] = {}
    file: str = ""
    content: Mapping[str, Any] = {}

    def exports(self, *, beside_file: bool = False) -> str:
        """The lines for a shell; `beside_file` only what the file cannot have, which is the key."""
        return "\n".join(
            f"export {name}={text if text == _KEY else shlex.quote(text)}"
            for name, text in self.variables.items()
            if text == _KEY or not beside_file
        )


def usable_models(catalog: Catalog, router: Router) -> list[Model]:
    """Returns the active models that a channel has, in the order of the catalog."""
    served = router.access_for(("*",)).model_ids
    return [each for each in catalog if each.lifecycle is Lifecycle.ACTIVE and each.id in served]


def settings_of(client: str, address: str, model: str, small_model: str) -> Settings:
    """`address` is without /v1; `small_model` is for titles and other work in the background."""
    v1 = f"{address}/v1"
    content: dict[str, Any]
    if client == "claude-code":
        variables = {
            "ANTHROPIC_BASE_URL": address,
            "ANTHROPIC_AUTH_TOKEN": _KEY,
            "ANTHROPIC_MODEL": model,
            "ANTHROPIC_SMALL_FAST_MODEL": small_model,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        # A key in the file would be sent in place of the shell's.
        env = variables | {"ANTHROPIC_AUTH_TOKEN": None, "ANTHROPIC_API_KEY": None}
        file, content = ".claude/settings.json", {"env": env}
        return Settings(start="claude", variables=variables, file=file, content=content)
    if client == "codex":
        providers = {"gateway": _CODEX | {"base_url": v1}}
        content = {"model": model, "model_provider": "gateway", "model_providers": providers}
        return Settings(start=client, file=".codex/config.toml", content=content)
    if client == "opencode":
        provider = _OPENCODE | {
            "options": {"baseURL": v1, "apiKey": f"{{env:{_KEY[1:]}}}"},
            "models": {model: {}, small_model: {}},
        }
        names = {"model": f"gateway/{model}", "small_model": f"gateway/{small_model}"}
        content = {"provider": {"gateway": provider}} | names
        return Settings(start=client, file=".config/opencode/opencode.json", content=content)
    if client == "aider":
        variables = {"OPENAI_API_BASE": v1, "OPENAI_API_KEY": _KEY}
        return Settings(start=f"aider --model openai/{shlex.quote(model)}", variables=variables)
    name, base_url = client.upper(), v1 if client == "openai" else address
    variables = {f"{name}_BASE_URL": base_url, f"{name}_API_KEY": _KEY}
    return Settings(start=f"your program, with the model {model}", variables=variables)


def toml_lines(content: Content) -> Iterator[str]:
    """Tables inline: what follows in the file still belongs to its top level. A string of JSON is
    one of TOML."""
    for name, each in content.items():
        if not isinstance(each, dict):
            yield f"{name} = {orjson.dumps(each).decode()}\n"
        for key, fields in each.items() if isinstance(each, dict) else ():
            inline = ", ".join(line.strip() for line in toml_lines(fields))
            yield f"{name}.{key} = {{ {inline} }}\n"
