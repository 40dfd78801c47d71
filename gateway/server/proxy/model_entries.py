"""A model in the lists that client libraries and agents read, each with its own shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from gateway.config.schema import Model
from gateway.core.target import EFFORTS, ThinkingStyle
from gateway.quota.pricing import token_costs
from gateway.routing.catalog import Catalog, stated_traits_of

_NAME: Final = "\0name"
"""Stands for a name, which has no such character."""

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


Entry = Callable[[Model, str, str, Catalog], dict[str, Any]]
"""Builds the entry of a model under a name; the third argument is the multiplier of the group."""


@lru_cache(maxsize=8)
def rendered_entries(
    catalog: Catalog, entry: Entry, multiplier: str = "1"
) -> dict[str, tuple[tuple[str, bytes], ...]]:
    """The names of each model by its id, each with its entry as JSON: aliases follow their model,
    but not patterns. Entries that differ in texts alone are rendered once: upstreams list thousands
    of models that have little else."""
    rendered, templates, dumps = {}, dict[tuple[object, ...], bytes](), orjson.dumps
    for model in catalog:
        prices = model.multiplier, id(model.rates), id(model.price)
        sizes = model.context, model.max_output
        same = model.family, model.lifecycle, sizes, prices, _Traits.of(model)
        if (template := templates.get(same)) is None:
            template = templates[same] = _template(model, entry, multiplier, catalog)
        texts = {b"title": dumps(model.display_name), b"description": dumps(model.description)}
        entries = []
        for name in (model.id, *[alias for alias in model.aliases if "*" not in alias]):
            texts[b"name"] = dumps(name)
            if model.display_name is None:
                texts[b"title"] = texts[b"name"]
            entries.append((name, template % texts))
        rendered[model.id] = tuple(entries)
    return rendered


def _template(model: Model, entry: Entry, multiplier: str, catalog: Catalog) -> bytes:
    """The entry as JSON with places for its texts."""
    title, description = f"{_NAME} title", f"{_NAME} description"
    like = model.model_copy(update={"display_name": title, "description": description})
    whole = orjson.dumps(entry(like, _NAME, multiplier, catalog)).replace(b"%", b"%%")
    for text, place in ((title, b"title"), (description, b"description"), (_NAME, b"name")):
        whole = whole.replace(orjson.dumps(text), b"%%(%b)b" % place)
    return whole


def list_entry(model: Model, name: str, multiplier: str, catalog: Catalog) -> dict[str, Any]:
    """The entry for the client libraries of all formats, with the fields of each."""
    return {
        "id": name,
        "object": "model",
        "type": "model",
        "created": CREATED,
        "created_at": CREATED_AT,
        "owned_by": model.family.value,
        "display_name": model.display_name or name,
        "description": model.description,
        "lifecycle": model.lifecycle.value,
        "max_input_tokens": model.context,
        "max_tokens": model.max_output,
        "context_window": model.context,
        "max_output_tokens": model.max_output,
        "input_modalities": _modalities(model),
        "capabilities": _capabilities(_Traits.of(model)),
    }


def codex_entry(model: Model, name: str, multiplier: str, catalog: Catalog) -> dict[str, Any]:
    """The entry for Codex, which rejects a list without any of the first eleven fields."""
    efforts = [each for each in _Traits.of(model).efforts if each in ("minimal", *_LEVELS)]
    return {
        "slug": name,
        "display_name": model.display_name or name,
        "supported_reasoning_levels": [{"effort": e, "description": e} for e in efforts],
        "shell_type": "shell_command",
        "visibility": "list",
        "supported_in_api": True,
        "priority": 0,
        "base_instructions": _INSTRUCTIONS,
        "support_verbosity": False,
        "truncation_policy": {"mode": "tokens", "limit": 10_000},
        "experimental_supported_tools": [],
        "description": model.description,
        "default_reasoning_level": "medium" if "medium" in efforts else None,
        "supports_reasoning_summaries": bool(efforts),
        "supports_parallel_tool_calls": True,
        "apply_patch_tool_type": "freeform",
        "context_window": model.context,
        "input_modalities": _modalities(model),
    }


def litellm_entry(model: Model, name: str, multiplier: str, catalog: Catalog) -> dict[str, Any]:
    """The entry of LiteLLM's `/model/info`, with the prices in US dollars for one token."""
    traits, costs = _Traits.of(model), token_costs(model, multiplier, catalog.money)
    info = {
        "id": name,
        "key": name,
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
        "description": model.description,
    }
    if costs:
        info |= {
            "input_cost_per_token": costs["input"],
            "output_cost_per_token": costs["output"],
            "cache_read_input_token_cost": costs["cache read"],
            "cache_creation_input_token_cost": costs["cache write"],
        }
    return {"model_name": name, "litellm_params": {"model": name}, "model_info": info}


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
