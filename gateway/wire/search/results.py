"""Results of searches that the gateway runs: from the endpoint, to the client, to the model.

They pass through the client in `encrypted_content`, so that a later request shows them to the model
again: `gw1s.` and base64url of JSON. Nothing in it is secret, and nothing is trusted.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeGuard
from urllib.parse import SplitResult, urlsplit

import orjson

from gateway.core.formats import Format
from gateway.core.parts import ProviderData, ServerToolResult
from gateway.core.prompt import WebSearch
from gateway.wire.json.fields import Payload, lenient_objects, lenient_str
from gateway.wire.json.limits import load_json
from gateway.wire.search.calls import WEB_SEARCH

MAX_QUERY: Final = 1000
"""Characters."""
RESULT_TYPE: Final = f"{WEB_SEARCH}_tool_result"
"""The type of the block with the results of a search, in messages."""

_PREFIX: Final = "gw1s."
_MAX_URL: Final = 2048
_MAX_TITLE: Final = 300
_MAX_TEXT: Final = 2000
_MAX_PACKED: Final = 256 * 1024
_MAX_ENTRIES: Final = 200
"""Results of an endpoint that are looked at."""
_MAX_HINTS: Final = 6
"""Allowed domains that a query names; results are filtered anyway."""


class SearchResult(NamedTuple):
    """`text` is what the endpoint quotes of the page, `age` its date, as far as it is known."""

    url: str
    title: str
    text: str = ""
    age: str | None = None


class _Domain(NamedTuple):
    """A host with its subdomains, and the parts of a path between wildcards."""

    host: str
    path: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> _Domain:
        host, slash, path = text.removeprefix("https://").removeprefix("http://").partition("/")
        pieces = f"{slash}{path}".split("*") if path else [""]
        return cls(_ascii_host(host.partition(":")[0]), tuple(pieces))

    def contains(self, url: SplitResult) -> bool:
        host = _ascii_host(url.hostname or "")
        if host != self.host and not host.endswith(f".{self.host}"):
            return False
        first, *others = self.path
        if not url.path.startswith(first):
            return False
        at = len(first)
        for piece in others:
            found = url.path.find(piece, at)
            if found < 0:
                return False
            at = found + len(piece)
        return True


def _ascii_host(host: str) -> str:
    host = host.lower().rstrip(".")
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return host


def restricted_query(query: str, search: WebSearch) -> str:
    """The query with a few allowed domains, as most search engines read them."""
    sites = [f"site:{domain}" for domain in search.allowed_domains]
    if not sites or len(sites) > _MAX_HINTS:
        return query
    return f"{query} {sites[0]}" if len(sites) == 1 else f"{query} ({' OR '.join(sites)})"


def parse_results(entries: list[Any], search: WebSearch, limit: int) -> list[SearchResult]:
    """The first usable results of an endpoint's list, each address once, as far as the lists of
    domains admit them."""
    allowed = [*map(_Domain.parse, search.allowed_domains)]
    blocked = [*map(_Domain.parse, search.blocked_domains)]
    results: dict[str, SearchResult] = {}
    for entry in lenient_objects(entries[:_MAX_ENTRIES]):
        url = lenient_str(entry.get("url"))
        address = _split(url)
        if address is None or url in results:
            continue
        if allowed and not any(domain.contains(address) for domain in allowed):
            continue
        if any(domain.contains(address) for domain in blocked):
            continue
        title = _cut(lenient_str(entry.get("title")), _MAX_TITLE) or url
        text = _cut(lenient_str(entry.get("content")), _MAX_TEXT)
        age = _cut(lenient_str(entry.get("publishedDate")), 40)
        results[url] = SearchResult(url, title, text, age or None)
        if len(results) == limit:
            break
    return [*results.values()]


def _split(url: str) -> SplitResult | None:
    if len(url) > _MAX_URL or not url.isprintable():
        return None
    try:
        address = urlsplit(url)
        return address if address.scheme in ("http", "https") and address.hostname else None
    except ValueError:
        return None


def _cut(text: str, length: int) -> str:
    """One line of printable text."""
    return "".join(filter(str.isprintable, " ".join(text[: 4 * length].split())))[:length]


def result_part(call_id: str, results: Sequence[SearchResult]) -> ServerToolResult:
    """The results for the client, in the form of messages."""
    content = [
        {
            "type": "web_search_result",
            "url": result.url,
            "title": result.title,
            "encrypted_content": _pack([result.text]),
            "page_age": result.age,
        }
        for result in results
    ]
    return _result_part(call_id, content)


def error_part(call_id: str, code: str) -> ServerToolResult:
    """A search that failed, for the client."""
    return _result_part(call_id, {"type": f"{RESULT_TYPE}_error", "error_code": code})


def _result_part(call_id: str, content: Any) -> ServerToolResult:
    block = {"type": RESULT_TYPE, "tool_use_id": call_id, "content": content}
    return ServerToolResult(call_id, WEB_SEARCH, ProviderData(Format.MESSAGES, block))


def describe_results(results: Iterable[SearchResult]) -> str:
    """The results for the model."""
    texts = [
        f"{number}. {result.title}\n{result.url}"
        + (f" ({result.age})" if result.age else "")
        + (f"\n{result.text}" if result.text else "")
        for number, result in enumerate(results, 1)
    ]
    return "\n\n".join(texts) or "Nothing was found."


def describe_error(code: str) -> str:
    """A search that failed, for the model."""
    return f"The search failed: {code}."


def pack_block(block: Payload) -> str:
    """The content of a result block as one text, for formats without such blocks."""
    content = block.get("content")
    if isinstance(content, dict):
        return _pack({"e": lenient_str(content.get("error_code"))})
    return _pack([list(result) for result in _block_results(content)])


def is_packed(text: Any) -> TypeGuard[str]:
    return isinstance(text, str) and text.startswith(_PREFIX)


def unpack_text(packed: str) -> str:
    """Returns what the model read, from a text of `pack_block`."""
    data = _unpack(packed)
    if isinstance(data, dict):
        return describe_error(lenient_str(data.get("e")))
    results = [
        SearchResult(*row)
        for row in (data if isinstance(data, list) else [])
        if isinstance(row, list) and len(row) == len(SearchResult._fields) and _is_text(row)
    ]
    return describe_results(results)


def block_text(block: Payload) -> str:
    """Returns what the model read, from a result block that came back."""
    content = block.get("content")
    if isinstance(content, dict):
        return describe_error(lenient_str(content.get("error_code")))
    return describe_results(_block_results(content))


def _block_results(content: Any) -> list[SearchResult]:
    results: list[SearchResult] = []
    for entry in lenient_objects(content):
        packed = entry.get("encrypted_content")
        texts = _unpack(packed) if is_packed(packed) else None
        text = lenient_str(texts[0]) if isinstance(texts, list) and texts else ""
        url = lenient_str(entry.get("url"))
        age = lenient_str(entry.get("page_age")) or None
        results.append(SearchResult(url, lenient_str(entry.get("title")) or url, text, age))
    return results


def _is_text(row: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in row[:3]) and isinstance(row[3], str | None)


def _pack(data: Any) -> str:
    return _PREFIX + urlsafe_b64encode(orjson.dumps(data)).decode().rstrip("=")


def _unpack(packed: str) -> Any:
    """Unpacks a block; None if it cannot be read."""
    code = packed.removeprefix(_PREFIX)
    if len(code) > _MAX_PACKED:
        return None
    try:
        return load_json(urlsafe_b64decode(code + "=" * (-len(code) % 4)))
    except (ValueError, TypeError):
        return None
