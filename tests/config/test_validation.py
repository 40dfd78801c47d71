"""Every kind of problem, with its line and path."""

from __future__ import annotations

from textwrap import dedent

import pytest

from gateway.config.document import ConfigError
from gateway.config.load import parse_config

CANARY = "canary-7f3a9c"

CHANNEL = dedent("""\
    channels:
      - name: main
        format: chat
        base_url: http://host/v1
        models: [beta-5.4]
        accounts:
          - {name: a1, key: k1}
    """)


def problems_in(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "f.yaml")
    return str(caught.value).splitlines()


def channel(old: str, new: str) -> str:
    assert old in CHANNEL
    return CHANNEL.replace(old, new)


def test_valid_channel() -> None:
    assert parse_config(CHANNEL).channels[0].models == {"beta-5.4": "beta-5.4"}


UNSAFE_YAML = "anchors (&), aliases (*) and tags (!) are not accepted: put such text in quotes"


ENDPOINT = "must not end in an endpoint: leave out"
TABS = "tabs are not allowed as indentation: use spaces"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [", "f.yaml:2:1: not YAML: while parsing a flow node, did not find expected node"),
        ("a:\n\t- b", f"f.yaml:2:1: {TABS}"),
        ("a:\n  -\tb: 1\n\t c: 2", f"f.yaml:2:4: {TABS}"),
        ("a:\n  b: 1\n  \tc: 2", f"f.yaml:3:3: {TABS}"),
        ("a: 1\n---\nb: 2", "f.yaml:2:1: not YAML: expected a single document in the stream"),
        ("# é\na: \x07", "f.yaml:2: not YAML: control characters are not allowed"),
        ("a: &x 1", f"f.yaml:1:4: {UNSAFE_YAML}"),
        ("b: 1\na: *x", f"f.yaml:2:4: {UNSAFE_YAML}"),
        ("a: !!python/name:os.system", f"f.yaml:1:4: {UNSAFE_YAML}"),
        ("a: !x 1", f"f.yaml:1:4: {UNSAFE_YAML}"),
        ("[" * 900 + "]" * 900, "f.yaml:1:17: nested too deeply"),
        ("#" * (2**20 + 1), "f.yaml: the file is larger than 1 MiB"),
    ],
)
def test_unreadable_file(text: str, expected: str) -> None:
    (found,) = problems_in(text)
    assert found.startswith(expected)


def test_too_deep_for_the_parser_itself() -> None:
    """Some versions of the parser have a limit of their own, which it reaches first."""
    (found,) = problems_in("[" * 100_000)
    assert found.endswith(": nested too deeply")


def test_not_utf8() -> None:
    from gateway.config.document import read_document

    with pytest.raises(ConfigError, match=r"^f\.yaml:2: not UTF-8 text$"):
        read_document(b"a: 1\nb: \xff", "f.yaml")


def test_all_anchors_are_reported() -> None:
    assert [line.split(": ")[0] for line in problems_in("a: &x 1\nb: &y 2\nc: *x")] == [
        "f.yaml:1:4",
        "f.yaml:2:4",
        "f.yaml:3:4",
    ]


def test_unquoted_reference_hint() -> None:
    (found,) = problems_in(channel("key: k1", "key: ${CHAT_KEY}"))
    assert found.startswith("f.yaml:7:")
    assert found.endswith('(write "${NAME}" in quotes)')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # form
        ("server: {port: 1, port: 2}", "1: server.port: repeated key, first on line 1"),
        ("state_dir: a\n\nstate_dir: b", "3: state_dir: repeated key, first on line 1"),
        ("5: x", "1: a key must be text: put it in quotes"),
        ("state_dir: 2026-01-01", "1: state_dir: neither text nor a number: put it in quotes"),
        ("server: {port: 0b_}", "1: server.port: not a number"),
        ("hello", "1: must be a mapping"),
        # unknown and missing keys
        ("servers: {}", "1: servers: unknown key; did you mean server?"),
        ("server: {hosts: a}", "1: server.hosts: unknown key; did you mean host?"),
        ("nothing_like_it: {}", "1: nothing_like_it: unknown key"),
        (
            CHANNEL + "    priorty: 1\n",
            "8: channels[0].priorty: unknown key; did you mean priority?",
        ),
        (
            channel("{name: a1, key: k1}", "{name: a1, key: k1, kye: k2}"),
            "7: channels[0].accounts[0].kye: unknown key; did you mean key?",
        ),
        (
            CHANNEL + "    timeouts:\n      idel: 5\n",
            "9: channels[0].timeouts.idel: unknown key; did you mean idle?",
        ),
        (channel("    format: chat\n", ""), "2: channels[0].format: is missing"),
        (channel("key: k1", ""), "7: channels[0].accounts[0].key: is missing"),
        ("models: [{id: x}]", "1: models[0].family: is missing"),
        # types and ranges
        ('server: {port: "80"}', "1: server.port: must be a whole number"),
        ("server: {port: 80.5}", "1: server.port: must be a whole number"),
        ("server: {port: true}", "1: server.port: must be a whole number"),
        ("server: {port: 65536}", "1: server.port: must be less than or equal to 65535"),
        ("server: {host: no}", "1: server.host: must be text: put it in quotes"),
        ("server: {require_version_header: 1}", "1: server.require_version_header: must be true"),
        ("server: {version_headers: []}", "1: server.version_headers: must not be empty"),
        ("server: {max_body: 3 foos}", "1: server.max_body: must be a number, alone or with a"),
        ("server: {max_body: 0}", "1: server.max_body: must be greater than 0"),
        ("server: {drain_timeout: .inf}", "1: server.drain_timeout: must be a finite number"),
        ("server: {drain_timeout: 1 year}", "1: server.drain_timeout: must be a number, alone or"),
        ("server: {trusted_proxies: [10.0.0.1/8]}", "1: server.trusted_proxies[0]: must be a net"),
        ("server: {public_url: ftp://x}", "1: server.public_url: must begin with http:// or"),
        ("server: {cors: on}", "1: server.cors: must be a list"),
        ("channels: {}", "1: channels: must be a list"),
        ("channels: [x]", "1: channels[0]: must be a mapping"),
        (
            channel("chat", "chta"),
            "3: channels[0].format: must be 'chat', 'messages' or 'responses",
        ),
        (channel("name: main", "name: a/b"), "2: channels[0].name: has characters that are not"),
        (channel("[beta-5.4]", "[]"), "5: channels[0].models: must not be empty"),
        (channel("[beta-5.4]", "beta-5.4"), "5: channels[0].models: must be a list or a mapping"),
        (channel("[beta-5.4]", "[5.4]"), "5: channels[0].models: every model must be text"),
        (
            channel("[beta-5.4]", "{beta-5.4: 5}"),
            '5: channels[0].models["beta-5.4"]: must be text: put it in quotes',
        ),
        (CHANNEL + "    lane: nativ\n", "8: channels[0].lane: must be 'native' or 'translated'"),
        (
            CHANNEL + "    headers: {Authorization: x}\n",
            "8: channels[0].headers.Authorization: the gateway sets this header itself",
        ),
        (
            CHANNEL + '    headers:\n      x-team: "two\\nlines"\n',
            "9: channels[0].headers.x-team: the value is empty or has characters that no header",
        ),
        # channel options
        (CHANNEL + "    priority: 0.5\n", "8: channels[0].priority: must be a whole number"),
        (CHANNEL + "    weight: -1\n", "8: channels[0].weight: must be greater than or equal to 0"),
        (CHANNEL + "    weight: .inf\n", "8: channels[0].weight: must be a finite number"),
        (
            channel("key: k1", "key: k1, concurrency: 0"),
            "7: channels[0].accounts[0].concurrency: must be greater than 0",
        ),
        (
            channel("key: k1", "key: k1, weight: much"),
            "7: channels[0].accounts[0].weight: must be a number",
        ),
        (CHANNEL + "    stream: always\n", "8: channels[0].stream: must be 'follow' or 'force'"),
        (
            CHANNEL + "    on_disconnect: go\n",
            "8: channels[0].on_disconnect: must be 'cancel' or 'drain'",
        ),
        (CHANNEL + "    affinity: 1\n", "8: channels[0].affinity: must be true or false"),
        (CHANNEL + "    params: [a]\n", "8: channels[0].params: must be a mapping"),
        (
            CHANNEL + "    params:\n      a: 1\n      model: x\n",
            "10: channels[0].params.model: the gateway sets this field itself",
        ),
        (
            CHANNEL + "    params: {seed: 99999999999999999999}\n",
            "8: channels[0].params: has a number that JSON cannot represent",
        ),
        (
            CHANNEL + "    params: {a: [.nan]}\n",
            "8: channels[0].params: has a number that JSON cannot represent",
        ),
        (
            CHANNEL + "    proxy: socks5://host:1080\n",
            "8: channels[0].proxy: must begin with http:// and name a host",
        ),
        (
            CHANNEL + "    proxy: http://user:pass@host:3128\n",
            "8: channels[0].proxy: must have nothing but a host and a port",
        ),
        (CHANNEL + '    user_agent: "a\\nb"\n', "8: channels[0].user_agent: has characters that"),
        (
            CHANNEL + '    version_header: "2023-06-01"\n',
            "8: channels[0].version_header: only messages channels are sent a version",
        ),
        (CHANNEL + "    timeouts: {write: 0}\n", "8: channels[0].timeouts.write: must be greater"),
        ("server: {commit_after: soon}", "1: server.commit_after: must be a number, alone or"),
        ("server: {show_channel: 1}", "1: server.show_channel: must be true or false"),
        ("affinity: {headers: [a b]}", "1: affinity.headers[0]: has characters that are not"),
        # rules
        ("rules: {}", "1: rules: must be a list"),
        ("rules: [{status: [500]}]", "1: rules[0].blame: is missing"),
        ("rules: [{blame: me, text: x}]", "1: rules[0].blame: must be 'client', 'account', 'cap"),
        (
            "rules:\n- {blame: client, text: x}\n- {blame: account, for: 5s}",
            "3: rules[1]: matches everything: give status, type, code or text",
        ),
        (
            "rules: [{blame: account, code: '('}]",
            "1: rules[0].code: is not a valid regular expression",
        ),
        ("rules: [{blame: account, status: [42]}]", "1: rules[0].status[0]: must be greater than"),
        ("rules: [{blame: account, text: x, for: 0}]", "1: rules[0].for: must be greater than 0"),
        (
            "rules: [{blame: account, text: x, seconds: 5}]",
            "1: rules[0].seconds: unknown key",
        ),
        (
            "rules: [{blame: account, text: x, fore: 5}]",
            "1: rules[0].fore: unknown key; did you mean for?",
        ),
        (
            "rules: [{blame: client, text: x, for: 5}]",
            "1: rules[0]: for: a client error does not pause an account",
        ),
        ("state_dir: " + "x" * 97, "1: state_dir: too long: the path of the admin socket in it"),
        # models
        ("models: []", "1: models: must not be empty"),
        (
            "models:\n- {id: x, family: beta, multiplier: -1}",
            "2: models[0].multiplier: must be greater than or equal to 0",
        ),
        (
            CHANNEL + "    traits: {thinkin: budget}\n",
            "8: channels[0].traits.thinkin: unknown key; did you mean thinking?",
        ),
        (
            "models: [{id: x, family: alpha, traits: {efforts: [low, hard]}}]",
            "1: models[0].traits.efforts[1]: must be 'none', 'minimal', 'low'",
        ),
        (
            "models: [{id: x, family: alpha, traits: {prefill: sometimes}}]",
            "1: models[0].traits.prefill: must be true or false",
        ),
        # families
        ("families: {gamma: {endpoints: [chat]}}", "1: families.gamma: unknown key"),
        ("families: {alpha: {endpoints: []}}", "1: families.alpha.endpoints: must not be empty"),
        (
            "families: {alpha: {endpoints: [chat, mail]}}",
            "1: families.alpha.endpoints[1]: must be 'chat', 'messages' or 'responses'",
        ),
        ("models: [{id: x, family: gamma}]", "1: models[0].family: must be 'alpha' or 'beta'"),
        ("models: [{id: x, family: beta, context: 0}]", "1: models[0].context: must be greater"),
        (
            "models:\n- {id: x, family: beta}\n- {id: x, family: beta}",
            "3: models[1].id: model id or alias already used on line 2",
        ),
        (
            "models:\n- {id: x, family: beta, aliases: [z], fallbacks: [x, v]}\n"
            "- {id: v, family: beta}",
            "2: models[0].fallbacks[0]: model already used on line 2",
        ),
        (
            "models: [{id: x, family: beta, aliases: [z], fallbacks: [z]}]",
            "1: models[0].fallbacks[0]: an alias: here the id is needed",
        ),
        (
            "models: [{id: x, family: beta, fallbacks: [y]}]",
            "1: models[0].fallbacks[0]: no such model",
        ),
        (
            "models:\n- {id: x, family: beta, aliases: [y]}\n- {id: y, family: beta}",
            "2: models[0].aliases[0]: model id or alias already used on line 3",
        ),
        (
            "models:\n- {id: x, family: beta, aliases: [z]}\n- {id: y, family: beta, aliases: [z]}",
            "3: models[1].aliases[0]: model id or alias already used on line 2",
        ),
        (
            channel("[beta-5.4]", "\n    - beta-5.4\n    - bta-5.5"),
            "7: channels[0].models[1]: no such model; did you mean beta-5.5?",
        ),
        (
            channel("[beta-5.4]", "{nothing: x}"),
            "5: channels[0].models.nothing: no such model",
        ),
        (
            channel("beta-5.4", "m") + "models: [{id: model, family: beta, aliases: [m]}]\n",
            "5: channels[0].models[0]: an alias: here the id is needed",
        ),
        (channel("[beta-5.4]", "[beta-5.4, beta-5.4]"), "5: channels[0].models[1]: model already"),
        # names
        (
            CHANNEL + CHANNEL.removeprefix("channels:\n"),
            "8: channels[1].name: channel name already used on line 2",
        ),
        (
            CHANNEL + "      - {name: a1, key: k2}\n",
            "8: channels[0].accounts[1].name: account name already used on line 7",
        ),
    ],
)
def test_single_problem(text: str, expected: str) -> None:
    (found,) = problems_in(text)
    assert found.startswith(f"f.yaml:{expected}")


@pytest.mark.parametrize(
    ("format", "url", "expected"),
    [
        ("messages", "http://host/v1", "must not end in /v1"),
        ("messages", "http://host/v1/", "must not end in /v1"),
        ("messages", "http://host/v1/messages", f"{ENDPOINT} /v1/messages,"),
        ("messages", "http://host/x/messages/", f"{ENDPOINT} /messages,"),
        ("chat", "http://host/v1/chat/completions", f"{ENDPOINT} /chat/completions,"),
        ("chat", "http://host/v1/messages", f"{ENDPOINT} /messages,"),
        ("responses", "http://host/responses", f"{ENDPOINT} /responses,"),
        ("responses", "http://host/v1/models", f"{ENDPOINT} /models,"),
        ("messages", "http://host/v1/messages/count_tokens", f"{ENDPOINT} /v1/messages/count_"),
        ("chat", "http://host/V1/Chat/Completions", f"{ENDPOINT} /Chat/Completions,"),
        ("chat", "http://host", "must have a path"),
        ("responses", "http://host/", "must have a path"),
        ("chat", "ftp://host/v1", "must begin with http:// or https://"),
        ("chat", "host/v1", "must begin with http:// or https://"),
        ("chat", "http:///v1", "must name a host"),
        ("chat", "http://user:pass@host/v1", "must not carry a user name or password"),
        ("chat", "http://host/v1?key=1", "must not have a query"),
        ("chat", "http://host/v1#x", "must not have a fragment"),
        ("chat", "http://host:99999/v1", "is not a valid address"),
        ("chat", "http://[::1/v1", "is not a valid address"),
        ("chat", "http://ho st/v1", "must not contain spaces"),
    ],
)
def test_invalid_base_url(format: str, url: str, expected: str) -> None:
    text = channel("format: chat", f"format: {format}").replace("http://host/v1", f'"{url}"')
    (found,) = problems_in(text)
    assert found.startswith(f"f.yaml:4: channels[0].base_url: {expected}")


@pytest.mark.parametrize(
    ("format", "url", "kept"),
    [
        ("messages", "http://host", "http://host"),
        ("messages", "https://host/v1/proxy/", "https://host/v1/proxy"),
        ("chat", "http://[::1]:80/v1/", "http://[::1]:80/v1"),
        ("responses", "http://host/any", "http://host/any"),
    ],
)
def test_valid_base_url(format: str, url: str, kept: str) -> None:
    text = channel("format: chat", f"format: {format}").replace("http://host/v1", f'"{url}"')
    assert parse_config(text).channels[0].base_url == kept


def test_all_problems_in_file_order() -> None:
    text = dedent("""\
        server: {port: many, hots: x}
        channels:
          - name: main
            format: chat
            base_url: http://user@host/v1
            models: [beta-5.4, beta-5.44]
            accounts:
              - {name: a1}
              - {name: a1, key: "${UNSET"}
          - name: main
            format: telex
            base_url: http://host/v1
            models: {}
            accounts: []
        server: {}
        """)
    assert problems_in(text) == [
        "f.yaml:1: server.port: must be a whole number",
        "f.yaml:1: server.hots: unknown key; did you mean host?",
        "f.yaml:5: channels[0].base_url: must not carry a user name or password: "
        "the credential belongs to an account",
        "f.yaml:6: channels[0].models[1]: no such model; did you mean beta-5.4?",
        "f.yaml:8: channels[0].accounts[0].key: is missing",
        "f.yaml:9: channels[0].accounts[1].name: account name already used on line 8",
        "f.yaml:10: channels[1].name: channel name already used on line 3",
        "f.yaml:11: channels[1].format: must be 'chat', 'messages' or 'responses'",
        "f.yaml:13: channels[1].models: must not be empty",
        "f.yaml:14: channels[1].accounts: must not be empty",
        "f.yaml:15: server: repeated key, first on line 1",
    ]


@pytest.mark.parametrize(
    "text",
    [
        f"channels: {CANARY}",
        f"channels: [{CANARY}]",
        f"server: {{port: {CANARY}, max_body: 5 {CANARY}, drain_timeout: {CANARY}}}",
        f"server: {{cors: {CANARY}, host: [{CANARY}]}}",
        f"server: {{trusted_proxies: [{CANARY}], public_url: {CANARY}, version_headers: {CANARY}}}",
        f"models: [{{id: x y {CANARY}, family: {CANARY}, multiplier: {CANARY}}}]",
        f"state_dir: !!binary {CANARY}",
        f"state_dir: !{CANARY} x",
        f"state_dir: &{CANARY} x",
        f"state_dir: *{CANARY}",
        f"state_dir: {CANARY}: x",
        f'state_dir: "\\q{CANARY}"',
        f"sk-{CANARY}: x",
        f"{CANARY} with spaces: x",
        channel("base_url: http://host/v1", f"base_url: http://{CANARY}:{CANARY}@host"),
        channel("base_url: http://host/v1", f"base_url: http://host:{CANARY}/v1"),
        channel("[beta-5.4]", f"[{CANARY}]"),
        channel("accounts:", f"accounts: {CANARY} #").replace("- {name: a1, key: k1}", "# x"),
        channel("{name: a1, key: k1}", CANARY),
        channel("key: k1", f"key: [{CANARY}]"),
        channel("key: k1", f"key: {{sk-{CANARY}: 1}}"),
        channel("key: k1", f"key: *{CANARY}"),
        channel("key: k1", f"key: k1, sk-{CANARY}: x"),
        channel("key: k1", f"key: ${{{CANARY}}}"),
        CHANNEL + f"    proxy: http://{CANARY}:{CANARY}@h\n    user_agent: '\u00e9{CANARY}'\n",
        CHANNEL + f"    stream: {CANARY}\n    params: {CANARY}\n    weight: {CANARY}\n",
        f"rules: [{{blame: {CANARY}, text: '({CANARY}', status: [{CANARY}], for: {CANARY}}}]",
        CHANNEL + f"    lane: {CANARY}\n    headers: {{x y: {CANARY}, host: {CANARY}}}\n",
        CHANNEL
        + f'    headers: {{x-key: "{CANARY} ${{A}}", x: "\u00e9{CANARY}", a: [{CANARY}]}}\n',
    ],
)
def test_problems_show_no_values(text: str) -> None:
    assert CANARY not in "\n".join(problems_in(text))
