"""What to write into clients so that they call the gateway, ready to be copied. It must not know a
key: `KEY` stands for it.

Names of variables and packages are those of the stock clients, for they read no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

KEY: Final = "YOUR_KEY"
_NO_MODEL: Final = "MODEL"


@dataclass(frozen=True, slots=True)
class Snippet:
    """`id` is unique among them; `note` is a sentence, or empty."""

    id: str
    title: str
    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class SnippetGroup:
    """Clients of one format, with their base URL."""

    title: str
    base_url: str
    snippets: Sequence[Snippet]


def snippets(
    address: str, *, version_header: str, chat_model: str, messages_model: str
) -> tuple[SnippetGroup, ...]:
    """For a gateway at `address`, which has no closing slash; the model of chat is that of
    responses too, "" where there is none to name."""
    values = {
        "{address}": address,
        "{key}": KEY,
        "{version}": version_header,
        "{beta}": chat_model or _NO_MODEL,
        "{alpha}": messages_model or _NO_MODEL,
    }

    def filled(text: str) -> str:
        for name, value in values.items():
            text = text.replace(name, value)
        return text.strip("\n")

    return tuple(
        SnippetGroup(
            title,
            filled(base),
            tuple(Snippet(id, name, filled(text), note) for id, name, text, note in rows),
        )
        for title, base, rows in _GROUPS
    )


_CHAT_CURL: Final = """
curl -sS {address}/v1/chat/completions \\
  -H 'authorization: Bearer {key}' \\
  -H 'content-type: application/json' \\
  -d '{"model": "{beta}", "messages": [{"role": "user", "content": "Hello!"}]}'
"""

_MESSAGES_CURL: Final = """
curl -sS {address}/v1/messages \\
  -H 'x-api-key: {key}' \\
  -H '{version}: 2023-06-01' \\
  -H 'content-type: application/json' \\
  -d '{"model": "{alpha}", "max_tokens": 200, "messages": [{"role": "user", "content": "Hello!"}]}'
"""

_RESPONSES_CURL: Final = """
curl -sS {address}/v1/responses \\
  -H 'authorization: Bearer {key}' \\
  -H 'content-type: application/json' \\
  -d '{"model": "{beta}", "input": "Hello!"}'
"""

_CHAT_PYTHON: Final = """
from openai import OpenAI

client = OpenAI(base_url="{address}/v1", api_key="{key}")
answer = client.chat.completions.create(
    model="{beta}",
    messages=[{"role": "user", "content": "Hello!"}],
)
print(answer.choices[0].message.content)
"""

_MESSAGES_PYTHON: Final = """
from anthropic import Anthropic

client = Anthropic(base_url="{address}", api_key="{key}")
answer = client.messages.create(
    model="{alpha}",
    max_tokens=200,
    messages=[{"role": "user", "content": "Hello!"}],
)
print(answer.content[0].text)
"""

_RESPONSES_PYTHON: Final = """
from openai import OpenAI

client = OpenAI(base_url="{address}/v1", api_key="{key}")
answer = client.responses.create(model="{beta}", input="Hello!")
print(answer.output_text)
"""

_MESSAGES_AGENT: Final = """
export ANTHROPIC_BASE_URL='{address}'
export ANTHROPIC_AUTH_TOKEN='{key}'
export ANTHROPIC_MODEL='{alpha}'
"""

_RESPONSES_AGENT: Final = """
model = "{beta}"
model_provider = "gateway"

[model_providers.gateway]
name = "Model Gateway"
base_url = "{address}/v1"
wire_api = "responses"
env_key = "GATEWAY_KEY"
"""

_RESPONSES_KEY: Final = """
export GATEWAY_KEY='{key}'
"""

_LIBRARY: Final = "A stock library, in Python"
_AGENT: Final = "A coding agent: the environment"
_BASE_URL_NOTE: Final = (
    "Without /v1: the agent adds it, and with it asks for /v1/v1/messages for ever."
)

_GROUPS: Final = (
    (
        "Chat-completions",
        "{address}/v1",
        (
            ("chat-curl", "curl", _CHAT_CURL, ""),
            ("chat-python", _LIBRARY, _CHAT_PYTHON, ""),
        ),
    ),
    (
        "Messages",
        "{address}",
        (
            ("messages-curl", "curl", _MESSAGES_CURL, ""),
            ("messages-python", _LIBRARY, _MESSAGES_PYTHON, ""),
            ("messages-agent", _AGENT, _MESSAGES_AGENT, _BASE_URL_NOTE),
        ),
    ),
    (
        "Responses",
        "{address}/v1",
        (
            ("responses-curl", "curl", _RESPONSES_CURL, ""),
            ("responses-python", _LIBRARY, _RESPONSES_PYTHON, ""),
            (
                "responses-agent",
                "A coding agent: its configuration file",
                _RESPONSES_AGENT,
                "Usually config.toml in the agent's folder.",
            ),
            ("responses-agent-key", _AGENT, _RESPONSES_KEY, ""),
        ),
    ),
)
