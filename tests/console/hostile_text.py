"""The text of a hostile upstream, and how a page must show it."""

from __future__ import annotations

from html.parser import HTMLParser

HOSTILE_TEXT = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31mred\u202egnp.exe"
    "\nsecond 'line' \"quoted\" </pre></td>"
)

DISPLAYED_TEXT = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>\\x1b[31mred\\u202egnp.exe"
    "\nsecond 'line' \"quoted\" </pre></td>"
)
"""As it is displayed."""


def is_harmless(html: str) -> bool:
    """Whether all scripts and images are the console's, and there are no event handlers, styles and
    control characters."""
    page = _Page()
    page.feed(html)
    return not page.harm and not {"\x1b", "\u202e"} & set(html)


def preformatted_texts(html: str) -> list[str]:
    """The texts of all `<pre>` elements."""
    page = _Page()
    page.feed(html)
    return page.texts


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.harm: list[str] = []
        self.texts: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        source = dict(attrs).get("src") or ""
        if tag in ("script", "img") and not source.startswith("/console/"):
            self.harm.append(tag)
        self.harm += [name for name, _ in attrs if name.startswith("on") or name == "style"]
        self.harm += [tag] * (tag in ("b", "style", "iframe", "object", "base"))
        if tag == "pre":
            self._inside = True
            self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "pre"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[-1] += data
