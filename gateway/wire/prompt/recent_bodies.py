"""The newest bodies of each key, so that of the next request of a conversation only what is new is
parsed.

What a body shares with an earlier one is found by its bytes: an element of `messages` or `input`
that begins and ends within them is the same value. What is known of one key's bodies serves no
other key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from gateway.wire.json.edit import find_member
from gateway.wire.json.fields import Payload
from gateway.wire.json.limits import count_values
from gateway.wire.json.numbers import parse_json
from gateway.wire.prompt.known_turns import UNSETTLED, Definitions, Messages

MAX_BYTES: Final = 32 * 1024 * 1024
"""Memory of all bodies that are kept, as it is estimated."""
MAX_BYTES_OF_KEY: Final = MAX_BYTES // 2
_PER_BYTE: Final = 3
"""Bytes of memory for a byte of a body: itself, its strings, and what they are rendered to."""
_PER_VALUE: Final = 128

_LISTS: Final = ("messages", "input")
"""The member with the messages, of each format."""
_LEAST_SHARED: Final = 4096
"""Bytes of messages below which nothing is gained."""
_FIRST_PROBE: Final = 4096
_PROBE_SIZE: Final = 256
"""Bodies of a conversation are found by so many bytes before powers of two."""
_MAX_TRIES: Final = 3
"""Places where the last shared message may end."""


class _Checked(NamedTuple):
    """The first messages whose place is known: where the list begins and the next
    element begins, their number, and the values before it."""

    start: int
    next: int
    known: int
    values: int


@dataclass(slots=True, eq=False)
class _Body:
    key: str
    raw: bytes
    member: str
    messages: Messages
    definitions: Definitions | None
    checked: _Checked | None
    size: int
    """Bytes of memory, as they are estimated."""


class Parsed(NamedTuple):
    """A body, and the number of its values. `earlier` has its first messages."""

    body: Payload
    values: int
    earlier: _Body
    checked: _Checked


class RecentBodies:
    """`token` is a text that no client knows."""

    def __init__(self, token: str) -> None:
        self._token = token
        self.clear()

    def clear(self) -> None:
        self.bytes = 0
        self._bodies: dict[_Body, None] = {}  # the oldest first
        self._of_key: dict[str, dict[_Body, None]] = {}
        self._bytes_of_key: Counter[str] = Counter()
        self._by_probe: dict[tuple[str, int, bytes], _Body] = {}

    def parse(self, key: str, raw: bytes) -> Parsed | None:
        """Parses a body, which need not be valid, that continues an earlier one; else None."""
        earlier = self._find(key, raw)
        checked = None if earlier is None else _check(earlier, raw)
        if earlier is None or checked is None:
            return None
        start, next, count, values = checked
        rest = raw[next:]
        try:
            body = parse_json(b'%b["%b",%b' % (raw[:start], self._token.encode(), rest))
        except orjson.JSONDecodeError:
            return None
        new = body.get(earlier.member) if isinstance(body, dict) else None
        if not isinstance(new, list) or not new or new[0] != self._token:
            return None
        known = earlier.messages
        body[earlier.member] = Messages([*known[:count], *new[1:]], known, count)
        if isinstance(tools := body.get("tools"), list):
            body["tools"] = _same_definitions(tools, earlier.definitions)
        return Parsed(body, values + count_values(rest), earlier, checked)

    def add(self, key: str, raw: bytes, body: Payload, values: int, parsed: Parsed | None) -> None:
        """Keeps a body, in place of the one that it continues; its messages become `Messages`."""
        name = next((name for name in _LISTS if isinstance(body.get(name), list)), "")
        messages = body.get(name)
        if not messages:
            return
        checked = None
        if parsed is not None:
            checked, earlier = parsed.checked, parsed.earlier
            is_whole = checked.known >= len(earlier.messages) - UNSETTLED
            if is_whole and earlier in self._bodies:  # else it may go on, too
                self._remove(earlier)
        if type(messages) is not Messages:
            body[name] = messages = Messages(messages)
        definitions = None
        if isinstance(tools := body.get("tools"), list):
            body["tools"] = definitions = _same_definitions(tools, None)
        size = len(raw) * _PER_BYTE + values * _PER_VALUE
        new = _Body(key, raw, name, messages, definitions, checked, size)
        own = self._of_key.setdefault(key, {})
        self._bodies[new] = own[new] = None
        self.bytes += new.size
        self._bytes_of_key[key] += new.size
        self._by_probe.update(dict.fromkeys(_probes(key, raw), new))
        while self._bytes_of_key[key] > MAX_BYTES_OF_KEY:
            self._remove(next(iter(own)))
        while self.bytes > MAX_BYTES:
            self._remove(next(iter(self._bodies)))

    def _find(self, key: str, raw: bytes) -> _Body | None:
        for probe in _probes(key, raw):
            if (found := self._by_probe.get(probe)) is not None and found.raw.startswith(
                raw[: probe[1]]
            ):
                return found
        return None

    def _remove(self, body: _Body) -> None:
        del self._bodies[body]
        self.bytes -= body.size
        self._bytes_of_key[body.key] -= body.size
        own = self._of_key[body.key]
        del own[body]
        if not own:
            del self._of_key[body.key], self._bytes_of_key[body.key]
        for probe in _probes(body.key, body.raw):
            if self._by_probe.get(probe) is body:
                del self._by_probe[probe]


def _probes(key: str, raw: bytes) -> Iterator[tuple[str, int, bytes]]:
    """The longest first."""
    end = 1 << (len(raw).bit_length() - 1)
    while end >= _FIRST_PROBE:
        yield key, end, raw[end - _PROBE_SIZE : end]
        end >>= 1


def _same_definitions(tools: list[Any], earlier: Definitions | None) -> Definitions:
    """The tools, as those of the earlier body where they are the same."""
    new = tools if type(tools) is Definitions else Definitions(tools)
    return earlier if earlier is not None and new.text and earlier.text == new.text else new


def _check(earlier: _Body, raw: bytes) -> _Checked | None:
    """The messages that the bodies share, at least the first one; None where they are too few."""
    if earlier.checked is None:
        at = find_member(earlier.raw, earlier.member)
        if at is None or earlier.raw[at : at + 1] != b"[":
            return None
        earlier.checked = _Checked(at, at + 1, 0, count_values(earlier.raw[: at + 1]))
    checked = earlier.checked
    common = _common_length(earlier.raw, raw)
    last = earlier.messages[-1]
    if not isinstance(last, dict) or not last:
        return None
    name = orjson.dumps(next(iter(last)))
    brace = common - 1  # all earlier messages, if more follow
    if (earlier.raw[brace : common + 1], raw[brace : common + 1]) != (b"}]", b"},"):
        brace = -1
    for _ in range(_MAX_TRIES):
        if brace < 0:
            # A quote within a string is escaped: such a name begins an object after another one.
            brace = max(raw.rfind(b"}%b{%b:" % (gap, name), 0, common) for gap in (b",", b", "))
        if brace - checked.start < _LEAST_SHARED:
            return None
        if brace < checked.next:
            values = count_values(raw[: checked.start + 1])
            checked = _Checked(checked.start, checked.start + 1, 0, values)
        start, begin, count, values = checked
        end = brace + 2
        piece = raw[begin:end]
        try:
            elements = orjson.loads(b"[%b]" % piece[:-1])
        except orjson.JSONDecodeError:
            common, brace = brace + 1, -1
            continue
        earlier.checked = _Checked(start, end, count + len(elements), values + count_values(piece))
        return earlier.checked
    return None


def _common_length(one: bytes, other: bytes) -> int:
    """The number of first bytes in which they agree."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
