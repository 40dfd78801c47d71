"""A model in the lists that client libraries and agents read, each with its own shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from gateway.config.schema import Config, Model
from gateway.core.target import EFFORTS, ThinkingStyle
from gateway.quota.pricing import token_costs
from gateway.routing.catalog import Catalog, stated_traits_of

CREATED: Final = 1767225600
CREATED_AT: Final = "2026-01-01T00:00:00Z"
"""Catalog entries have no creation time; libraries require one."""

_LEVELS: Final = ("low", "medium", "high", "xhigh", "max")
"""The efforts of messages."""

_INSTRUCTIONS: Final = (
    "You are a coding agent that works in the user's terminal, on the files of the current "
    "directory. Read before you write: look for the code, the tests and the conventions that a "
    "task concerns, with fast searches (rg) and a few lines at a time. Make the smallest change "
    "that solves the whole task, in the style of what is there, and edit files with apply_patch "
    "where you have it. Run what proves your change, such as the tests that cover it. Go on until "
    "the task is done: try another way where one fails, and ask only if you cannot know what is "
    "wanted. Never undo changes that are not yours, never discard uncommitted work, and commit "
    "only when asked. Follow the AGENTS.md files of the directories that you touch. Say in a short "
    "sentence what you are about to do before each group of commands, and at the end what you "
    "changed, where, and what you could not verify."
)
"""The system prompt of a model that Codex does not know: its list of models has to contain one."""

_STATED: Final = ("structured", "efforts", "thinking")


class _Traits(NamedTuple):
    images: bool
    structured: bool
    efforts: tuple[str, ...]
    thinking: ThinkingStyle | None

    @classmethod
    def of(cls, model: Model) -> _Traits:
        structured, efforts, thinking = stated_traits_of(model, *_STATED)
        structured = structured is None or structured
        return cls(model.images, structured, EFFORTS if efforts is None else efforts, thinking)


class Entry(NamedTuple):
    """A model in a list: its `own` fields, by its name and what its tokens cost, and in the same
    object, at `depth` of objects, the fields that alike models share."""

    own: Callable[[Model, str, dict[str, float]], dict[str, Any]]
    shared: Callable[[Model, _Traits], dict[str, Any]]
    has_costs: bool = False
    depth: int = 1


Rendered = tuple[str, bytes, bytes]
"""A name of a model and its entry, in two parts: many entries have the same second one."""


@lru_cache(maxsize=8)
def rendered_entries(catalog: Catalog, entry: Entry, multiplier: str) -> dict[str, list[Rendered]]:
    """The names of each model by its id, each with its entry as JSON: aliases follow their model,
    but not patterns. What alike models share is rendered and kept once: upstreams list thousands
    of models that differ in little else than texts."""
    rendered, shared = {}, dict[tuple[object, ...], bytes]()
    own, dumps, costs = entry.own, orjson.dumps, dict[str, float]()
    for model in catalog:
        traits = _Traits.of(model)
        alike = model.family, model.lifecycle, model.context, model.max_output, traits
        if (rest := shared.get(alike)) is None:
            rest = b"," + dumps(entry.shared(model, traits))[1:] + b"}" * (entry.depth - 1)
            shared[alike] = rest
        if entry.has_costs:
            costs = token_costs(model, multiplier, catalog.money)
        rendered[model.id] = [
            (name, dumps(own(model, name, costs))[: -entry.depth], rest)
            for name in (model.id, *model.aliases)
            if "*" not in name
        ]
    return rendered


def rendered_catalog(config: Config) -> Catalog:
    """The catalog with its lists rendered, but for groups with a multiplier, so that no request
    waits for it; 0.2 s for 10,000 models."""
    catalog = Catalog.of(config)
    for entry in (LIST, CODEX, LITELLM):
        rendered_entries(catalog, entry, "1")
    return catalog


def rendered_model(model: Model, name: str) -> bytes:
    """Its entry in `LIST`, under a name that no list may have."""
    return orjson.dumps(_list_own(model, name, {}) | _list_shared(model, _Traits.of(model)))


def _list_own(model: Model, name: str, costs: dict[str, float]) -> dict[str, Any]:
    return {
        "id": name,
        "display_name": model.display_name or name,
        "description": model.description,
    }


def _list_shared(model: Model, traits: _Traits) -> dict[str, Any]:
    return {
        "object": "model",
        "type": "model",
        "created": CREATED,
        "created_at": CREATED_AT,
        "owned_by": model.family.value,
        "lifecycle": model.lifecycle.value,
        "max_input_tokens": model.context,
        "max_tokens": model.max_output,
        "context_window": model.context,
        "max_output_tokens": model.max_output,
        "input_modalities": _modalities(model),
        "capabilities": _capabilities(traits),
    }


def _codex_own(model: Model, name: str, costs: dict[str, float]) -> dict[str, Any]:
    return {
        "slug": name,
        "display_name": model.display_name or name,
        "description": model.description,
    }


def _codex_shared(model: Model, traits: _Traits) -> dict[str, Any]:
    efforts = [each for each in traits.efforts if each in ("minimal", *_LEVELS)]
    return {
        "supported_reasoning_levels": [{"effort": e, "description": e} for e in efforts],
        "shell_type": "shell_command",
        "visibility": "list",
        "supported_in_api": True,
        "priority": 0,
        "base_instructions": _INSTRUCTIONS,
        "support_verbosity": False,
        "truncation_policy": {"mode": "tokens", "limit": 10_000},
        "experimental_supported_tools": [],
        "default_reasoning_level": "medium" if "medium" in efforts else None,
        "supports_reasoning_summaries": bool(efforts),
        "supports_parallel_tool_calls": True,
        "apply_patch_tool_type": "freeform",
        "context_window": model.context,
        "input_modalities": _modalities(model),
    }


def _litellm_own(model: Model, name: str, costs: dict[str, float]) -> dict[str, Any]:
    info: dict[str, Any] = {"id": name, "key": name, "description": model.description}
    if costs:
        info |= {
            "input_cost_per_token": costs["input"],
            "output_cost_per_token": costs["output"],
            "cache_read_input_token_cost": costs["cache read"],
            "cache_creation_input_token_cost": costs["cache write"],
        }
    return {"model_name": name, "litellm_params": {"model": name}, "model_info": info}


def _litellm_shared(model: Model, traits: _Traits) -> dict[str, Any]:
    return {
        "db_model": False,
        "mode": "chat",
        "litellm_provider": "openai",
        "max_tokens": model.max_output,
        "max_input_tokens": model.context,
        "max_output_tokens": model.max_output,
        "supports_vision": model.images,
        "supports_function_calling": True,
        "supports_response_schema": traits.structured,
        "supports_reasoning": bool(traits.efforts) or traits.thinking is not ThinkingStyle.NONE,
    }


LIST: Final = Entry(_list_own, _list_shared)
"""For the client libraries of all formats, with the fields of each."""
CODEX: Final = Entry(_codex_own, _codex_shared)
"""For Codex, which rejects a list where any of the fields up to `experimental_supported_tools` is
missing."""
LITELLM: Final = Entry(_litellm_own, _litellm_shared, has_costs=True, depth=2)
"""For `/model/info`, with the prices in US dollars for one token."""


def _modalities(model: Model) -> list[str]:
    return ["text", "image"] if model.images else ["text"]


@lru_cache(maxsize=256)
def _capabilities(traits: _Traits) -> orjson.Fragment:
    """Those of the messages format that the configuration states; others are absent."""
    thinking, efforts = traits.thinking, traits.efforts
    types = {
        "adaptive": thinking in (ThinkingStyle.ADAPTIVE, ThinkingStyle.ALWAYS),
        "enabled": thinking in (ThinkingStyle.BUDGET, None),
        "disabled": thinking is not ThinkingStyle.ALWAYS,
        "between_tools": False,
    }
    levels = {level: {"supported": level in efforts} for level in _LEVELS}
    fields = {
        "image_input": {"supported": traits.images},
        "structured_outputs": {"supported": traits.structured},
        "effort": {"supported": any(level in efforts for level in _LEVELS), **levels},
        "thinking": {
            "supported": thinking is not ThinkingStyle.NONE,
            "types": {name: {"supported": each} for name, each in types.items()},
        },
    }
    return orjson.Fragment(orjson.dumps(fields))
