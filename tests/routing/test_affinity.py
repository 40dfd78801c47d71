"""Session affinity: a conversation keeps its account, and conversations are spread by weight."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.schema import AffinitySettings
from gateway.core.formats import Format
from gateway.core.parts import Image, ProviderData, Source, Text
from gateway.core.prompt import Prompt, Role, Tool, ToolKind, Turn
from gateway.routing.affinity import (
    Affinity,
    AffinityIndex,
    AffinitySource,
    Member,
    can_be_continued,
    rendezvous_order,
    state_digest,
    weighted_shuffle,
)

MODEL = "alpha-1"
SESSION_HEADERS = AffinitySettings().headers
UUID = "0c2c5f5e-8d1e-4f4b-9d57-0e3a3f1f0a11"


def system(*texts: str) -> Turn:
    return Turn(Role.SYSTEM, tuple(map(Text, texts)))


def user(*texts: str) -> Turn:
    return Turn(Role.USER, tuple(map(Text, texts)))


def assistant(text: str) -> Turn:
    return Turn(Role.ASSISTANT, (Text(text),))


def prompt(*turns: Turn, **fields: Any) -> Prompt:
    return Prompt(format=Format.MESSAGES, model="sent", turns=turns or (user("hi"),), **fields)


def thread(previous: Any) -> ProviderData:
    return ProviderData(
        Format.MESSAGES, {"thread": {"type": "continue", "previous_message_id": previous}}
    )


def affinity(
    request: Prompt, headers: dict[str, str] | None = None, token: str = "t", model: str = MODEL
) -> Affinity | None:
    return AffinityIndex(SESSION_HEADERS).for_prompt(request, headers or {}, token, model)


def key(request: Prompt, headers: dict[str, str] | None = None, **where: str) -> bytes:
    found = affinity(request, headers, **where)
    assert found is not None
    return found.key


def source(request: Prompt, headers: dict[str, str] | None = None) -> AffinitySource:
    found = affinity(request, headers)
    assert found is not None
    return found.source


# The source of an affinity.

CLUES: list[tuple[AffinitySource, dict[str, Any], dict[str, str]]] = [
    (AffinitySource.CACHE_KEY, {"cache_key": "k"}, {}),
    (AffinitySource.USER, {"user": f"user_1f_account__session_{UUID}"}, {}),
    (AffinitySource.HEADER, {}, {"x-session-id": "s"}),
    (AffinitySource.PREVIOUS_MESSAGE, {"extra": thread("msg_1")}, {}),
    (AffinitySource.PREFIX, {}, {}),
]


@pytest.mark.parametrize("rank", range(len(CLUES)))
def test_the_first_source_decides(rank: int) -> None:
    fields: dict[str, Any] = {}
    headers: dict[str, str] = {}
    for _, more, also in CLUES[rank:]:
        fields |= more
        headers |= also
    assert source(prompt(**fields), headers) is CLUES[rank][0]


@pytest.mark.parametrize(("expected", "fields", "headers"), CLUES)
def test_an_identifier_is_enough_for_any_prompt(
    expected: AffinitySource, fields: dict[str, Any], headers: dict[str, str]
) -> None:
    one, other = prompt(user("one"), **fields), prompt(user("other"), **fields)
    assert (key(one, headers) == key(other, headers)) is (expected is not AffinitySource.PREFIX)


@pytest.mark.parametrize("name", SESSION_HEADERS)
def test_every_session_header_counts(name: str) -> None:
    assert source(prompt(), {name: "s"}) is AffinitySource.HEADER


def test_session_headers_are_as_configured() -> None:
    affinities = AffinityIndex(headers=("x-mine",))
    found = affinities.for_prompt(prompt(), {"x-session-id": "s"}, "t", MODEL)
    assert found is not None and found.source is AffinitySource.PREFIX
    found = affinities.for_prompt(prompt(), {"x-mine": "s"}, "t", MODEL)
    assert found is not None and found.source is AffinitySource.HEADER


@pytest.mark.parametrize(
    "sent",
    [
        f"user_1f_account__session_{UUID}",
        f"user_2e_account_99_session_{UUID}",
        f'{{"device_id":"d","account_uuid":"","session_id":"{UUID}"}}',
        f'{{"session":"{UUID}"}}',
    ],
)
def test_agents_encode_a_session_in_user(sent: str) -> None:
    assert source(prompt(user=sent)) is AffinitySource.USER
    assert key(prompt(user=sent)) == key(prompt(), {"session-id": UUID})


@pytest.mark.parametrize(
    "sent", ["alice", "", "{broken", '{"session_id":7}', '{"device_id":"d"}', "_session_", "{}"]
)
def test_a_user_without_a_session_is_no_source(sent: str) -> None:
    assert source(prompt(user=sent)) is AffinitySource.PREFIX


@pytest.mark.parametrize(
    "extra",
    [
        None,
        ProviderData(Format.MESSAGES, {"thread": {"type": "create"}}),
        ProviderData(Format.MESSAGES, {"thread": "x"}),
        ProviderData(Format.MESSAGES, ["thread"]),
        thread(7),
        thread(""),
    ],
)
def test_a_thread_without_a_previous_message_is_no_source(extra: ProviderData | None) -> None:
    assert source(prompt(extra=extra)) is AffinitySource.PREFIX


def test_tokens_and_models_have_separate_namespaces() -> None:
    request = prompt(cache_key="k")
    keys = {
        key(request),
        key(request, token="u"),
        key(request, model="beta-1"),
        key(prompt(cache_key="l")),
        key(prompt(cache_key="k"), token="t\0alpha-1"),
    }
    assert len(keys) == 5


def test_long_identifiers_are_clipped() -> None:
    assert key(prompt(cache_key="k" * 10**6)) == key(prompt(cache_key="k" * 2 * 10**6))


# The stable prefix.


def test_the_prefix_stays_the_same_from_turn_to_turn() -> None:
    opening = (system("Be brief."), user("Who are you?"))
    later = (*opening, assistant("A model."), system("New rules."), user("Which one?"))
    assert key(prompt(*opening)) == key(prompt(*later))


def tool(name: str, description: str | None = None) -> Tool:
    return Tool(kind=ToolKind.FUNCTION, name=name, description=description)


def test_system_tools_and_first_text_distinguish_conversations() -> None:
    prompts = [
        prompt(user("one")),
        prompt(user("two")),
        prompt(system("a"), user("one")),
        prompt(system("b"), user("one")),
        prompt(user("one"), tools=(tool("read"),)),
        prompt(user("one"), tools=(tool("read", "Reads."),)),
        prompt(Turn(Role.DEVELOPER, (Text("c"),)), user("one")),
    ]
    assert len({key(each) for each in prompts}) == len(prompts)


@pytest.mark.parametrize("name", ["x-anthropic-billing-header", "x-vendor-billing-header"])
def test_an_agents_billing_header_is_ignored(name: str) -> None:
    def asked(rotating: str) -> Prompt:
        return prompt(system(f"{name}: cch={rotating};", "Be brief."), user("hi"))

    assert key(asked("1")) == key(asked("2")) == key(prompt(system("Be brief."), user("hi")))


def test_a_long_system_text_does_not_hide_the_first_text() -> None:
    rules = system("rule " * 50_000)
    assert key(prompt(rules, user("one"))) != key(prompt(rules, user("two")))


def test_text_after_64_ki_is_ignored() -> None:
    same = "x" * 70_000
    assert key(prompt(user(same + "a"))) == key(prompt(user(same + "b")))
    assert key(prompt(user(same), tools=(tool("a"),))) == key(prompt(user(same)))


def test_a_prompt_without_text_has_no_affinity() -> None:
    image = Image(Source(url="http://127.0.0.1/cat"))
    assert affinity(prompt(Turn(Role.USER, (image,)))) is None
    assert affinity(prompt(user(""))) is None


def test_lone_surrogates_are_accepted() -> None:
    assert key(prompt(user("\ud800"))) != key(prompt(user("\ud801")))


# Chains, in which a request names only the previous reply.


@pytest.mark.parametrize("chained", ["response", "message"])
def test_a_chain_keeps_its_first_key_and_the_account_of_its_last_reply(
    chained: str,
) -> None:
    affinities = AffinityIndex()
    first = affinities.for_prompt(prompt(user("begin")), {}, "t", MODEL)
    assert first is not None and first.account_ref is None
    last = first
    for turn, ref in enumerate([("main", "a"), ("main", "b"), ("main", "b")]):
        affinities.record(last, "t", f"id_{turn}", ref)
        request = (
            prompt(user("and then?"), previous_response_id=f"id_{turn}")
            if chained == "response"
            else prompt(user("and then?"), extra=thread(f"id_{turn}"))
        )
        found = affinities.for_prompt(request, {}, "t", MODEL)
        assert found is not None
        assert (found.key, found.account_ref) == (first.key, ref)
        last = found


def test_a_chain_belongs_to_one_token() -> None:
    affinities = AffinityIndex()
    first = affinities.for_prompt(prompt(), {}, "t", MODEL)
    assert first is not None
    affinities.record(first, "t", "id", ("main", "a"))
    found = affinities.for_prompt(prompt(previous_response_id="id"), {}, "u", MODEL)
    assert found is not None
    assert found.account_ref is None and found.key != first.key


def test_with_another_source_the_chain_still_has_the_account() -> None:
    affinities = AffinityIndex()
    first = affinities.for_prompt(prompt(), {}, "t", MODEL)
    assert first is not None
    affinities.record(first, "t", "id", ("main", "b"))
    request = prompt(cache_key="k", previous_response_id="id")
    affinity = affinities.for_prompt(request, {}, "t", MODEL)
    assert affinity is not None
    assert affinity.key == key(prompt(cache_key="k"))
    assert (affinity.source, affinity.account_ref) == (AffinitySource.CACHE_KEY, ("main", "b"))


def test_only_the_newest_replies_are_remembered() -> None:
    affinities = AffinityIndex(capacity=2)
    first = affinities.for_prompt(prompt(), {}, "t", MODEL)
    assert first is not None
    for name in ("one", "two", "one", "three"):
        affinities.record(first, "t", name, ("main", "a"))
    known = {
        name: affinities.for_prompt(prompt(previous_response_id=name), {}, "t", MODEL).account_ref  # type: ignore[union-attr]  # it is recognised
        for name in ("one", "two", "three")
    }
    assert known == {"one": ("main", "a"), "two": None, "three": ("main", "a")}


# The order of accounts.


def members(*weights: float) -> list[Member]:
    return [(("main", str(index)), weight) for index, weight in enumerate(weights)]


def conversations(count: int) -> list[bytes]:
    return [key(prompt(cache_key=str(index))) for index in range(count)]


def test_the_order_is_the_same_in_every_process() -> None:
    orders = [rendezvous_order(bytes([each]) * 16, members(1, 1, 1, 1)) for each in range(4)]
    assert orders == [[3, 0, 2, 1], [3, 1, 0, 2], [0, 3, 1, 2], [1, 0, 3, 2]]


@given(st.binary(min_size=1, max_size=32), st.lists(st.floats(0, 100), max_size=6))
def test_an_order_has_every_member_once(key: bytes, weights: list[float]) -> None:
    assert sorted(rendezvous_order(key, members(*weights))) == list(range(len(weights)))


@given(
    st.binary(min_size=1, max_size=32),
    st.lists(st.floats(0.1, 100), min_size=1, max_size=6),
    st.data(),
)
def test_added_and_removed_members_move_no_other_key(
    key: bytes, weights: list[float], data: st.DataObject
) -> None:
    all_of_them = members(*weights)
    gone = data.draw(st.integers(0, len(weights) - 1))
    left = [each for index, each in enumerate(all_of_them) if index != gone]
    before = [all_of_them[index] for index in rendezvous_order(key, all_of_them) if index != gone]
    assert [left[index] for index in rendezvous_order(key, left)] == before


@given(st.binary(min_size=1, max_size=32), st.permutations(members(1, 2, 3, 4)))
def test_the_configured_order_does_not_matter(key: bytes, shuffled: list[Member]) -> None:
    whole = members(1, 2, 3, 4)
    assert [shuffled[i] for i in rendezvous_order(key, shuffled)] == [
        whole[i] for i in rendezvous_order(key, whole)
    ]


def test_a_new_account_takes_only_its_share() -> None:
    keys = conversations(3000)
    before = [rendezvous_order(each, members(1, 1, 1))[0] for each in keys]
    after = [rendezvous_order(each, members(1, 1, 1, 1))[0] for each in keys]
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {3}
    assert 0.22 < len(moved) / len(keys) < 0.28


def check_shares(leaders: list[int]) -> None:
    shares = {leader: count / len(leaders) for leader, count in Counter(leaders).items()}
    assert shares == pytest.approx({0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}, abs=0.03)


def test_conversations_are_spread_by_weight() -> None:
    check_shares([rendezvous_order(each, members(1, 2, 3, 4))[0] for each in conversations(4000)])


def test_without_affinity_requests_are_shuffled_by_weight() -> None:
    chance = Random(7).random
    check_shares([weighted_shuffle(members(1, 2, 3, 4), chance)[0] for _ in range(4000)])


@pytest.mark.parametrize("chance", [0.0, 0.5, 1 - 2**-53])
def test_shuffling_accepts_every_random_value(chance: float) -> None:
    assert sorted(weighted_shuffle(members(1, 0, 5), lambda: chance)) == [0, 1, 2]


def test_weight_0_comes_last() -> None:
    assert {rendezvous_order(each, members(0, 1))[0] for each in conversations(200)} == {1}
    chance = Random(7).random
    assert {weighted_shuffle(members(1, 0), chance)[0] for _ in range(200)} == {0}


def test_the_account_of_the_last_reply_comes_first() -> None:
    for each in conversations(50):
        whole = rendezvous_order(each, members(1, 1, 1))
        pinned = rendezvous_order(each, members(1, 1, 1), first=("main", "2"))
        assert pinned == [2, *(index for index in whole if index != 2)]


def test_a_removed_account_changes_nothing() -> None:
    for each in conversations(50):
        assert rendezvous_order(each, members(1, 1), first=("main", "9")) == rendezvous_order(
            each, members(1, 1)
        )


def test_two_hundred_conversations_of_five_turns_keep_their_accounts() -> None:
    """With every source of affinity."""
    affinities, pool = AffinityIndex(), members(1, 1)
    stayed = 0
    for number in range(200):
        opening = [system("Be brief."), user(f"Question {number}")]
        refs = []
        for turn in range(5):
            if number % 2:
                request = prompt(*opening, *[assistant("a"), user("b")] * turn)
            else:
                previous = f"r{number}_{turn - 1}" if turn else None
                request = prompt(*opening[turn > 0 :], previous_response_id=previous)
            found = affinities.for_prompt(request, {}, "t", MODEL)
            assert found is not None
            refs.append(pool[rendezvous_order(found.key, pool, found.account_ref)[0]][0])
            affinities.record(found, "t", f"r{number}_{turn}", refs[-1])
        stayed += sum(ref == refs[0] for ref in refs)
    assert stayed == 1000


@pytest.mark.parametrize(
    ("format", "fields", "expected"),
    [
        (Format.RESPONSES, {}, False),
        (Format.RESPONSES, {"store": True}, False),
        (Format.MESSAGES, {}, False),
        (
            Format.MESSAGES,
            {"extra": ProviderData(Format.MESSAGES, {"thread": {"type": "create"}})},
            True,
        ),
        (Format.MESSAGES, {"extra": ProviderData(Format.MESSAGES, {"betas": []})}, False),
        (Format.CHAT, {}, False),
    ],
)
def test_replies_that_can_be_continued(
    format: Format, fields: dict[str, Any], expected: bool
) -> None:
    prompt = Prompt(format=format, model="m", turns=(), **fields)
    assert can_be_continued(prompt) is expected


def test_states_that_only_their_account_can_read() -> None:
    told: list[bytes] = []
    index = AffinityIndex()
    index.on_record = lambda digest, _: told.append(digest)
    index.record_state("token", "opaque", ("channel", "account"))
    digest = state_digest("token", "opaque")
    assert told == [digest]
    assert index.account_of(digest) == ("channel", "account")
    assert index.account_of(state_digest("other", "opaque")) is None
