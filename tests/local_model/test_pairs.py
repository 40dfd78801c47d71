"""Every client format on every upstream format, with a real model that answers.

One model for each of the channels that the script printed, so that a test chooses who is asked.
Asserts shape, usage, limits, stops, errors and cuts; must not care what the model says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

import anthropic
import openai
import orjson
import pytest
import yaml

from tests.local_model.clients import ASK, PARAMETERS, Question
from tests.local_model.stream_cutter import cutter

from .conftest import Gateway, serving

FORMATS = ("chat", "messages", "responses")
TOO_LONG = "word " * 3000  # tokens; the model's context is 2048
CUT_AFTER = 4000  # bytes: some frames into the reply, far from its end

pytestmark = pytest.mark.local_model

each_pair = pytest.mark.parametrize(
    ("client", "upstream"),
    [(client, upstream) for client in FORMATS for upstream in FORMATS],
    ids=lambda value: value,
)
whole_and_streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@pytest.fixture(scope="module")
def pairs(
    channels: str, model_key: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway with the models `beta-<format>`, and `beta-<format>-cut` whose replies break."""
    given = yaml.safe_load(channels)
    port = urlsplit(given["channels"][0]["base_url"]).port
    assert port is not None
    with cutter(port, CUT_AFTER) as cut_port:
        broken = [
            channel
            | {
                "name": f"{channel['name']}-cut",
                "base_url": channel["base_url"].replace(f":{port}", f":{cut_port}"),
                "models": {f"beta-{channel['format']}-cut": "local"},
            }
            for channel in given["channels"]
        ]
        whole = [
            channel | {"models": {f"beta-{channel['format']}": "local"}}
            for channel in given["channels"]
        ]
        names = [name for channel in whole + broken for name in channel["models"]]
        models = [{"id": name, "family": "beta", "context": 2048} for name in names]
        config = given | {"models": models, "channels": whole + broken}
        folder = tmp_path_factory.mktemp("pairs")
        environment = {
            **os.environ,
            "LOCAL_MODEL_KEY": model_key,
            "GATEWAY_STATE_DIR": str(folder / "state"),
        }
        # JSON is YAML too, and has no anchors for what stands in it twice.
        with serving(folder, orjson.dumps(config).decode(), environment) as gateway:
            yield gateway


@whole_and_streamed
@each_pair
def test_text_usage_and_limit(pairs: Gateway, client: str, upstream: str, stream: bool) -> None:
    answer = ASK[client](pairs, Question(model=f"beta-{upstream}"), stream=stream)
    assert answer.model == f"beta-{upstream}"
    assert answer.text
    assert 0 < answer.output_tokens <= 24
    if upstream != "responses":  # llama.cpp calls every reply of this format completed
        assert answer.limited == (answer.output_tokens == 24)
    row = pairs.row(answer.request_id)
    assert (row["input_tokens"], row["output_tokens"]) == (
        answer.input_tokens,
        answer.output_tokens,
    )
    assert row["input_tokens"] > 0
    assert row["lane"] == ("native" if client == upstream else "translated")


@pytest.mark.one_in(9)
@each_pair
@whole_and_streamed
def test_a_history_with_a_call(pairs: Gateway, client: str, upstream: str, stream: bool) -> None:
    plain = ASK[client](pairs, Question(model=f"beta-{upstream}"), stream=stream)
    question = Question(model=f"beta-{upstream}", history=True)
    answer = ASK[client](pairs, question, stream=stream)
    assert answer.output_tokens > 0
    assert answer.input_tokens > plain.input_tokens  # the call and its result were read


@pytest.mark.one_in(6)
@pytest.mark.parametrize("client", ["chat", "messages"])  # responses has no stop sequences
@pytest.mark.parametrize("upstream", FORMATS)
@whole_and_streamed
def test_stop(pairs: Gateway, client: str, upstream: str, stream: bool) -> None:
    question = Question(model=f"beta-{upstream}", text="Count.", stop=("e", "a", "i", "o"))
    answer = ASK[client](pairs, question, stream=stream)
    assert not set(answer.text) & set("eaio")


@pytest.mark.one_in(9)
@each_pair
@whole_and_streamed
def test_too_long(pairs: Gateway, client: str, upstream: str, stream: bool) -> None:
    question = Question(model=f"beta-{upstream}", text=TOO_LONG)
    with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)) as refused:
        ASK[client](pairs, question, stream=stream)
    assert "2048" in str(refused.value.body)
    if client == "messages":
        assert "prompt is too long" in str(refused.value.body)
    else:
        assert refused.value.code == "context_length_exceeded"


@pytest.mark.one_in(9)
@each_pair
def test_a_cut_is_an_error(pairs: Gateway, client: str, upstream: str) -> None:
    question = Question(model=f"beta-{upstream}-cut", text="Tell a story.", limit=400)
    with pytest.raises(Exception) as broken:  # the class is each library's own affair
        ASK[client](pairs, question, stream=True)
    assert not isinstance(broken.value, AssertionError)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("client", FORMATS)
@whole_and_streamed
def test_json_by_schema_of_a_chat_upstream(pairs: Gateway, client: str, stream: bool) -> None:
    question = Question(model="beta-chat", text="Name a city.", limit=60, schema=PARAMETERS)
    answer = ASK[client](pairs, question, stream=stream)
    if not answer.limited:
        assert list(orjson.loads(answer.text)) == ["city"]
    else:
        assert answer.text.lstrip().startswith("{")
