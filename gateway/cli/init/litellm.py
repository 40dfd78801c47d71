"""The configuration that does what a LiteLLM proxy's does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
import yaml
from pydantic import TypeAdapter, ValidationError

from gateway.cli.errors import CommandRefused
from gateway.config.document import MAX_SIZE
from gateway.config.file_errors import file_error_reason
from gateway.config.presets import presets
from gateway.config.secrets import NO_KEY
from gateway.config.types import ModelId
from gateway.core.text import escape_unprintable

_PROVIDERS: Final = {
    **{name: name for name in ("openai", "azure", "anthropic", "gemini", "openrouter", "deepseek")},
    **{name: name for name in ("moonshot", "mistral", "groq", "xai", "ollama", "llamacpp")},
    **{"ollama_chat": "ollama", "hosted_vllm": "vllm", "lm_studio": "lmstudio"},
    **{"together_ai": "together", "fireworks_ai": "fireworks", "text-completion-openai": "openai"},
}
"""LiteLLM's prefix of a model → preset."""
_FAMILIES: Final = {"anthropic": "alpha"}
_PATHS: Final = {"azure": "/openai/v1", "ollama": "/v1"}
"""What an address here has and one of LiteLLM has not."""
_GENERATING: Final = (None, "chat", "completion", "responses")
_ENVIRONMENT: Final = "os.environ/"
_PARAMS: Final = {"model", "api_key", "api_base", "weight", "order", "max_parallel_requests"}
_INFO: Final = {"mode", "input_cost_per_token", "output_cost_per_token", "id", "base_model"}
_PRICES: Final = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "cache_read_input_token_cost": "cache_read",
    "cache_creation_input_token_cost": "cache_write",
}
_SIZES: Final = {"max_input_tokens": "context", "max_output_tokens": "max_output"}
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*", re.ASCII)
_MODEL_ID: Final = TypeAdapter(ModelId)


@dataclass(slots=True)
class Imported:
    """`models` by id, `channels` in the order of the file, as in a configuration; `left_out` says
    what has no counterpart."""

    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    channels: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [channel["name"] for channel in self.channels]

    def render(self, state_dir: Path, source: Path) -> str:
        """The text of a configuration file."""
        notes = "".join(f"#   - {escape_unprintable(note)}\n" for note in self.left_out)
        models = "".join(f"  - {_flow(model)}\n" for model in self.models.values())
        channels = "".join(map(_render_channel, self.channels))
        return (
            f"# From {source.name} of LiteLLM. Every option, with its default: "
            "config/channels.yaml of the project.\n# No secret is in this file: a key is a "
            'reference, "${NAME}" a variable of the gateway\'s environment.\n'
            + (f"# Left out, as there is no counterpart or no need:\n{notes}" if notes else "")
            + "\nserver: {host: 127.0.0.1, port: 8080}\n"
            f"state_dir: {_text(str(state_dir))}\n\n"
            + (f"models:\n{models}\n" if models else "")
            + f"channels:\n{channels}"
        )


def read_litellm(file: Path) -> Imported:
    """Raises CommandRefused for what is no configuration of LiteLLM with a usable model."""
    try:
        with file.open("rb") as opened:
            raw = opened.read(MAX_SIZE + 1)
        if len(raw) > MAX_SIZE:
            raise CommandRefused(f"{file} is larger than {MAX_SIZE >> 20} MiB.")
        data = yaml.load(raw, Loader=yaml.CSafeLoader)
    except OSError as error:
        raise CommandRefused(f"{file} cannot be read: {file_error_reason(error, file)}.") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise CommandRefused(f"{file}{line}: this is no YAML.") from None
    if not isinstance(data, dict) or not isinstance(data.get("model_list"), list):
        raise CommandRefused(f"{file} has no model_list: it is no configuration of LiteLLM.")
    imported = Imported()
    for number, entry in enumerate(data["model_list"]):
        _add_deployment(imported, f"model_list[{number}]", _mapping(entry))
    if not imported.channels:
        reasons = "\n".join(f"  {note}" for note in imported.left_out)
        raise CommandRefused(f"{file} has no model that can be taken over:\n{reasons}")
    settings = {
        name: _mapping(data.get(name))
        for name in ("litellm_settings", "router_settings", "general_settings")
    }
    _add_fallbacks(imported, settings)
    _add_aliases(imported, settings["router_settings"].pop("model_group_alias", None))
    for section, values in settings.items():
        if values:
            imported.left_out.append(f"{section}: {', '.join(map(str, values))}")
    others = data.keys() - settings.keys() - {"model_list"}
    imported.left_out += sorted(map(str, others))
    return imported


def _add_deployment(imported: Imported, place: str, entry: Mapping[str, Any]) -> None:
    params, info = _mapping(entry.get("litellm_params")), _mapping(entry.get("model_info"))
    name, model = str(entry.get("model_name", "")), str(params.get("model", ""))
    place = f"{place} ({name})"
    prefix, slash, upstream = model.partition("/")
    provider, upstream = (prefix, upstream) if slash else ("openai", model)
    preset = _PROVIDERS.get(str(params.get("custom_llm_provider", provider)))
    if preset is None:
        imported.left_out.append(
            f"{place}: provider {provider}; if it speaks one of the three formats, add a channel "
            "with its address (docs/upstreams.md)"
        )
        return
    if info.get("mode") not in _GENERATING:
        imported.left_out.append(f"{place}: mode {info['mode']}")
        return
    is_wildcard = "*" in name or "*" in model
    if not is_wildcard and not _is_model_id(name):
        imported.left_out.append(f"{place}: the name is no id of a model here")
        return
    channel = _channel_of(imported, place, preset, params)
    if is_wildcard:
        channel["models"] = "all"
        if name != "*":
            imported.left_out.append(f"{place}: the prefix of names; clients use the model's own")
    else:
        channel = _with_room(imported, channel, name, upstream)
        channel["models"][name] = upstream
        _add_model(imported, name, _FAMILIES.get(preset, "beta"), params, info)
    unused = sorted((params.keys() - _PARAMS - _PRICES.keys()) | (entry.keys() & {"rpm", "tpm"}))
    unused += sorted(info.keys() - _INFO - _PRICES.keys() - _SIZES.keys())
    if unused:
        imported.left_out.append(f"{place}: {', '.join(unused)}")


def _channel_of(
    imported: Imported, place: str, preset: str, params: Mapping[str, Any]
) -> dict[str, Any]:
    """The channel of this address and credential, a new one if need be."""
    channel: dict[str, Any] = {"preset": preset, "name": None, "models": None}
    if base_url := _base_url(imported, place, preset, params):
        channel["base_url"] = base_url
        if preset == "openai" and base_url != "https://api.openai.com/v1":
            channel["format"] = "chat"  # servers with the interface of another vendor
    for option, name, sign in (("weight", "weight", 1), ("order", "priority", -1)):
        if isinstance(params.get(option), int):
            channel[name] = sign * params[option]
    account: dict[str, Any] = {"name": "main", "key": _key(imported, place, preset, params)}
    if isinstance(params.get("max_parallel_requests"), int):
        account["concurrency"] = params["max_parallel_requests"]
    channel["accounts"] = [account]
    for known in imported.channels:
        if {**known, "name": None, "models": None} == channel:
            return known
    return _append(imported, channel)


def _base_url(imported: Imported, place: str, preset: str, params: Mapping[str, Any]) -> str:
    """Empty where that of the preset is right."""
    base_url = str(params.get("api_base") or params.get("base_url") or "").rstrip("/")
    if base_url.startswith(_ENVIRONMENT):
        imported.left_out.append(f"{place}: the address in {base_url}; state base_url")
        return "https://missing.invalid"
    if preset == "anthropic":
        return base_url.removesuffix("/v1/messages").removesuffix("/v1")
    path = _PATHS.get(preset, "")
    return base_url + path if base_url and not base_url.endswith(path) else base_url


def _key(imported: Imported, place: str, preset: str, params: Mapping[str, Any]) -> str:
    """A reference."""
    variable = presets()[preset].get("variable")
    key = params.get("api_key")
    if not key:
        return f"${{{variable}}}" if variable else NO_KEY
    if str(key).startswith(_ENVIRONMENT):
        return f"${{{str(key).removeprefix(_ENVIRONMENT)}}}"
    reference = f"${{{variable or 'UPSTREAM_API_KEY'}}}"
    imported.left_out.append(f"{place}: its key, which is no reference: put it into {reference}")
    return reference


def _append(imported: Imported, channel: dict[str, Any]) -> dict[str, Any]:
    preset = channel["preset"]
    count = sum(each["preset"] == preset for each in imported.channels)
    name = f"{preset}-{count + 1}" if count else preset
    imported.channels.append({**channel, "name": name, "models": {}})
    return imported.channels[-1]


def _with_room(
    imported: Imported, channel: dict[str, Any], name: str, upstream: str
) -> dict[str, Any]:
    """A channel of the same upstream where the name does not stand for another model."""
    if channel["models"] == "all" or channel["models"].get(name, upstream) != upstream:
        return _append(imported, channel)
    return channel


def _add_model(
    imported: Imported, id: str, family: str, params: Mapping[str, Any], info: Mapping[str, Any]
) -> None:
    model = imported.models.setdefault(id, {"id": id, "family": family})
    both = {**info, **params}
    price = {
        kind: round(number * 1_000_000, 9)
        for name, kind in _PRICES.items()
        if (number := _number(both.get(name))) is not None
    }
    if {"input", "output"} <= price.keys():
        model.setdefault("price", price)
    for name, option in _SIZES.items():
        if isinstance(info.get(name), int) and info[name] > 0:
            model.setdefault(option, info[name])


def _add_fallbacks(imported: Imported, settings: Mapping[str, dict[str, Any]]) -> None:
    for section in ("litellm_settings", "router_settings"):
        for entry in _items(settings[section].pop("fallbacks", None)):
            for id, others in _mapping(entry).items():
                known = [other for other in _items(others) if other in imported.models]
                if id in imported.models and known:
                    imported.models[id]["fallbacks"] = known
                if id not in imported.models or len(known) < len(_items(others)):
                    imported.left_out.append(f"{section}.fallbacks of {id}: models without channel")


def _add_aliases(imported: Imported, aliases: Any) -> None:
    for alias, target in _mapping(aliases).items():
        id = _mapping(target).get("model") if isinstance(target, dict) else target
        if id in imported.models and _is_model_id(alias):
            imported.models[id].setdefault("aliases", []).append(alias)
        else:
            imported.left_out.append(f"router_settings.model_group_alias: {alias}")


def _is_model_id(text: object) -> bool:
    try:
        _MODEL_ID.validate_python(text)
    except ValidationError:
        return False
    return True


def _number(value: Any) -> float | None:
    """For YAML 1.1 `1e-05` is a text."""
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None


def _mapping(value: Any) -> dict[str, Any]:
    return {str(name): each for name, each in value.items()} if isinstance(value, dict) else {}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _render_channel(channel: Mapping[str, Any]) -> str:
    lines = (f"{name}: {_flow(value)}" for name, value in channel.items())
    return "  - " + "\n    ".join(lines) + "\n"


def _flow(value: Any) -> str:
    """YAML on one line."""
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{_text(name)}: {_flow(each)}" for name, each in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _text(value)


def _text(value: Any) -> str:
    """JSON is also YAML; words are as they are."""
    is_word = isinstance(value, str) and _WORD.fullmatch(value) and yaml.safe_load(value) == value
    return str(value) if is_word else orjson.dumps(value).decode()
