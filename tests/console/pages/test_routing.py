"""The page of routing: the decision of the admin API, and what else refuses the key's request."""

from __future__ import annotations

from gateway.core.formats import Format
from tests.console.visitor import Visitor
from tests.support.gateway import ACCOUNT, ALPHA, BETA, RunningGateway

PATH = "/console/routing"


async def test_every_candidate_with_its_reasons(visitor: Visitor, gateway: RunningGateway) -> None:
    page = await visitor.get(f"{PATH}?model={BETA}&format=chat&key={gateway.token.id}")
    assert page.status == 200
    assert f"chat-main/{ACCOUNT} would be used" in page.text
    assert "translated from chat to messages" in page.text
    assert f"For the key {gateway.token.name} of the group default" in page.text


async def test_a_model_that_nothing_serves(visitor: Visitor) -> None:
    page = await visitor.get(f"{PATH}?model=nothing&format=chat")
    assert page.status == 200
    assert "the catalog has no model nothing. The client would get 503" in page.text


async def test_what_else_refuses_the_key(visitor: Visitor, gateway: RunningGateway) -> None:
    create = gateway.operations.create_key
    await create("spent", "default", limits={"requests_per_minute": 0}, models=(ALPHA,))
    page = await visitor.get(f"{PATH}?model={BETA}&format=chat&key=spent")
    assert "Its requests are refused: limit of 0" in page.text
    assert f"It is restricted to {ALPHA}" in page.text
    await create("twice", "default")
    await create("twice", "default")
    page = await visitor.get(f"{PATH}?model={BETA}&format=chat&key=twice")
    assert page.status == 422
    assert "Several keys have this name: twice (tok_" in page.text
    for query in ("key=nobody&format=chat", "format=soap"):
        assert (await visitor.get(f"{PATH}?model={BETA}&{query}")).status == 422


async def test_the_form_alone(visitor: Visitor) -> None:
    page = await visitor.get(PATH)
    assert page.status == 200
    for each in Format:
        assert f'<option value="{each}"' in page.html or f">{each}<" in page.html
