"""Calls of the admin API over its socket."""

from __future__ import annotations

from typing import Any

import aiohttp
import orjson


async def call(
    client: aiohttp.ClientSession, method: str, path: str, body: Any = None, **query: Any
) -> tuple[int, Any]:
    """The status and the JSON of an answer."""
    content = None if body is None else orjson.dumps(body)
    async with client.request(method, path, data=content, params=query) as answer:
        text = await answer.read()
        assert answer.status == 204 or answer.content_type == "application/json"
        return answer.status, orjson.loads(text) if text else None


def error_of(answer: tuple[int, Any]) -> tuple[int, str, str]:
    """Status, code and message; of a form, `mistakes` say the same field by field."""
    status, content = answer
    assert set(content) == {"error"}
    error = dict(content["error"])
    if mistakes := error.pop("mistakes", None):
        paths = [".".join(map(str, each["path"])) for each in mistakes]
        assert error["message"].startswith(paths[0])
        assert all(each["message"] in error["message"] for each in mistakes)
    assert set(error) == {"message", "code"}
    return status, error["code"], error["message"]
