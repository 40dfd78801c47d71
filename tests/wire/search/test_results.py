"""Results of searches: what is kept of an endpoint's answer, and what comes back from clients."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.prompt import WebSearch
from gateway.wire.search.results import (
    SearchResult,
    block_text,
    describe_results,
    error_part,
    is_packed,
    pack_block,
    parse_results,
    restricted_query,
    result_part,
    unpack_text,
)

PAGE = SearchResult("https://a.org/1", "A page", "What it says.", "2026-01-02")
ANY = WebSearch()


def entry(url: str, **fields: Any) -> dict[str, Any]:
    return {"url": url, "title": "t", "content": "c"} | fields


def kept(search: WebSearch, *urls: str) -> list[str]:
    return [each.url for each in parse_results([entry(url) for url in urls], search, 50)]


@pytest.mark.parametrize(
    ("domain", "url", "contained"),
    [
        ("a.org", "https://a.org", True),
        ("a.org", "http://A.ORG:8080/x", True),
        ("a.org", "https://www.a.org/x", True),
        ("a.org", "https://a.org./x", True),
        ("a.org", "https://ba.org/", False),
        ("a.org", "https://a.org.evil.com/", False),
        ("a.org", "https://evil.com/a.org", False),
        ("a.org", "https://a.org@evil.com/", False),
        ("a.org", "https://evil.com/?https://a.org", False),
        ("www.a.org", "https://a.org/", False),
        ("a.org/docs", "https://a.org/docs/1", True),
        ("a.org/docs", "https://b.a.org/docs", True),
        ("a.org/docs", "https://a.org/", False),
        ("a.org/*/docs", "https://a.org/en/docs/1", True),
        ("a.org/*/docs", "https://a.org/docs", False),
        ("https://a.org/", "https://a.org/1", True),
        ("bücher.example", "https://xn--bcher-kva.example/", True),
        ("xn--bcher-kva.example", "https://bücher.example/", True),
    ],
)
def test_domains(domain: str, url: str, contained: bool) -> None:
    allowed, blocked = WebSearch(allowed_domains=(domain,)), WebSearch(blocked_domains=(domain,))
    assert kept(allowed, url) == ([url] if contained else [])
    assert kept(blocked, url) == ([] if contained else [url])


def test_queries_name_a_few_allowed_domains() -> None:
    assert restricted_query("q", ANY) == "q"
    assert restricted_query("q", WebSearch(allowed_domains=("a.org",))) == "q site:a.org"
    two = WebSearch(allowed_domains=("a.org", "b.org"))
    assert restricted_query("q", two) == "q (site:a.org OR site:b.org)"
    many = WebSearch(allowed_domains=tuple(f"{n}.org" for n in range(7)))
    assert restricted_query("q", many) == "q"
    assert restricted_query("q", WebSearch(blocked_domains=("a.org",))) == "q"


def test_results_are_bounded() -> None:
    entries = [entry(f"https://a.org/{n}", content="x" * 100_000) for n in range(1000)]
    results = parse_results(entries, ANY, 50)
    assert len(results) == 50
    assert all(len(each.text) == 2000 for each in results)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(
    st.lists(
        json_values
        | st.fixed_dictionaries(
            {},
            optional={
                "url": st.text().map(lambda text: f"https://{text}") | json_values,
                "title": json_values,
                "content": json_values,
                "publishedDate": json_values,
            },
        )
    )
)
def test_no_entry_raises(entries: list[Any]) -> None:
    search = WebSearch(allowed_domains=("a.org",), blocked_domains=("b.org/x*y",))
    for each in (*parse_results(entries, ANY, 5), *parse_results(entries, search, 5)):
        assert each.url.startswith(("http://", "https://"))
        assert each.url.isprintable() and each.title.isprintable() and each.text.isprintable()


def test_results_return_as_they_were_read() -> None:
    pages = [PAGE, SearchResult("https://b.org", "B")]
    block = result_part("call", pages).content.data
    assert block_text(block) == describe_results(pages)
    assert unpack_text(pack_block(block)) == describe_results(pages)
    assert "What it says." in block_text(block) and "2026-01-02" in block_text(block)


def test_errors_return_as_they_were_read() -> None:
    block = error_part("call", "unavailable").content.data
    assert block_text(block) == unpack_text(pack_block(block)) == "The search failed: unavailable."


def packed(value: Any) -> str:
    return "gw1s." + urlsafe_b64encode(orjson.dumps(value)).decode()


@pytest.mark.parametrize(
    "text",
    [
        "gw1s.",
        "gw1s.!!!",
        "gw1s.AAAA",
        "gw1s." + "A" * 1_000_000,
        "gw1s." + urlsafe_b64encode(b"[" * 3000).decode(),
        packed(5),
        packed([5, [1, 2], ["u", "t", "x", 5], [["u"], "t", "x", None]]),
        packed([["https://a.org", "t", "x", None, "more"]]),
        packed({"e": 5}),
    ],
)
def test_what_clients_make_up(text: str) -> None:
    """It comes from clients: nothing raises, and nothing is taken for more than text."""
    assert is_packed(text)
    assert isinstance(unpack_text(text), str)
    content = [{"url": "https://a.org", "title": "t", "encrypted_content": text}, 5, None]
    assert "https://a.org" in block_text({"content": content})


@given(json_values)
def test_no_block_raises(content: Any) -> None:
    block = {"content": content}
    assert isinstance(block_text(block), str)
    assert isinstance(unpack_text(pack_block(block)), str)
