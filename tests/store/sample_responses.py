"""Stored responses for tests of what reads them."""

from __future__ import annotations

from functools import partial

from gateway.store import response_rows
from gateway.store.database import Database
from gateway.store.records import StoredResponse

CREATED = 1_790_000_000_000_000


def stored_response(
    number: int, token_id: str = "tok_a", previous: StoredResponse | None = None
) -> StoredResponse:
    suffix = f"{number:024x}"
    return StoredResponse(
        token_id=token_id,
        id=f"resp_{suffix}",
        format="responses",
        previous_id=previous.id if previous else None,
        root_id=previous.root_id if previous else f"resp_{suffix}",
        request_id=f"req_{suffix}",
        model="beta-5.4",
        status="completed",
        created_at=CREATED + number,
        expires_at=CREATED + 10**15,
        request=b'{"input":"%d"}' % number,
        reply=b'{"output":[]}',
    )


async def write_responses(database: Database, *replies: StoredResponse) -> None:
    packed = list(map(response_rows.Packer().pack, replies))
    await database.write(partial(response_rows.write, replies=packed, items=()))
