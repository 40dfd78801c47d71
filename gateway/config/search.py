"""Options of the web search that the gateway runs itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from gateway.config.secrets import resolve_header, resolve_key
from gateway.config.types import ConfigModel, HeaderName, Seconds, check_url


class SearchEndpoint(ConfigModel):
    """A search endpoint with the JSON interface of SearXNG. The gateway searches with it for models
    whose upstream has no web search."""

    url: Annotated[str, AfterValidator(check_url)]
    """The address that answers to ?q=...&format=json, such as http://127.0.0.1:8888/search.
    Redirects are not followed."""
    key: Annotated[SecretStr, AfterValidator(resolve_key)] | None = None
    """Sent as a bearer token; a reference or the key itself, as for accounts; null: none."""
    headers: Mapping[HeaderName, Annotated[SecretStr, AfterValidator(resolve_header)]] = {}
    """Additional headers, as for channels."""
    timeout: Seconds = 10
    """The time that a search may take; "10s" is accepted too."""
    max_results: int = Field(default=8, ge=1, le=50)
    """Results of a search that the model gets, at most."""
    max_searches: int = Field(default=10, ge=1, le=100)
    """Searches of one request, at most; max_uses of a client may be lower."""
    concurrency: int = Field(default=8, ge=1, le=1000)
    """Searches at a time, of all requests together; others wait within their timeout."""
