"""`gateway init`: writes the first configuration file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click
import orjson

from gateway.cli.errors import CommandRefused, report_config_errors
from gateway.cli.init.litellm import read_litellm
from gateway.cli.options import FILE, json_option
from gateway.cli.output import print_json, print_note
from gateway.config.load import parse_config
from gateway.config.locate import LOCAL_CONFIG, find_config
from gateway.config.presets import presets
from gateway.config.secrets import NO_KEY
from gateway.core.formats import Format

_TEMPLATE: Final = """\
# The configuration of the gateway. Every option, with its default: config/channels.yaml of the
# project; their JSON Schema: gateway check --schema. Changes apply while the gateway runs.
# No secret is in this file. A key is a reference: "${{NAME}}" is a variable of the gateway's
# environment, file:/path a file that has only the key.

server: {{host: 127.0.0.1, port: 8080}}
state_dir: {state_dir}     # the database and the admin socket

# The models that clients can ask for. family: alpha is served best in the format messages, beta
# in chat and responses. multiplier: the price in relation to the others. Further keys: price in
# dollars for a million tokens, aliases, context.
{models}

# The upstreams: a preset (docs/upstreams.md lists them) or format and base_url, as for a client
# library of the format, so with /v1 for chat and responses and without it for messages. models can
# rename: {{public-id: "the upstream's name"}}. A channel can have several accounts, and a model
# several channels: when one fails, the next is tried.
channels:
{channels}
"""
_ALL: Final = ("all",)
"""In place of models: those of the upstream's own list."""
_MODEL: Final = "  - {{id: {id}, family: {family}, multiplier: 1}}"
_CHANNEL: Final = """\
  - {properties}
    models: {models}
    accounts:
      - {{name: main, key: {key}}}"""


@dataclass(frozen=True, slots=True)
class Upstream:
    """A channel with one account; `key` is a reference. `base_url` is empty where that of the
    preset of this name is right."""

    name: str
    format: Format
    base_url: str
    key: str
    models: tuple[str, ...]
    is_preset: bool = False

    @property
    def properties(self) -> list[str]:
        """The lines of the file before those that every channel has."""
        first = f"{'preset' if self.is_preset else 'name'}: {self.name}"
        address = [f"base_url: {_quote(self.base_url)}"] if self.base_url else []
        return [first, f"format: {self.format.value}", *address]


@dataclass(frozen=True, slots=True)
class _KnownVariables:
    """The variables in which client libraries of a vendor look for their settings."""

    name: str
    format: Format
    base_url: str

    @property
    def prefix(self) -> str:
        return self.name.upper()

    def read(self, env: Mapping[str, str], models: Sequence[str]) -> Upstream:
        """Without a model, those of the upstream's own list."""
        prefix = self.prefix
        model = env.get(f"{prefix}_MODEL")
        found = (model,) if model else tuple(models) or _ALL
        base_url = env.get(f"{prefix}_BASE_URL") or self.base_url
        if self.format is Format.MESSAGES:
            base_url = base_url.rstrip("/").removesuffix("/v1")
        # Servers with the interface of another vendor have chat rather than responses.
        own = base_url == self.base_url or self.format is Format.MESSAGES
        kind = self.format if own else Format.CHAT
        return Upstream(self.name, kind, base_url, f"${{{prefix}_API_KEY}}", found)


_KNOWN: Final = (
    _KnownVariables("openai", Format.RESPONSES, "https://api.openai.com/v1"),
    _KnownVariables("anthropic", Format.MESSAGES, "https://api.anthropic.com"),
)


def _check_reference(text: str) -> str:
    """Does not repeat the text, which may be a key."""
    if text == NO_KEY or text.startswith("file:") or (text[:2] == "${" and text[-1] == "}"):
        return text
    raise click.BadParameter(
        "a reference is needed, ${NAME} or file:/path, or none: the key itself is neither an "
        "argument nor in the file."
    )


def _check_key(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    return None if value is None else _check_reference(value)


@click.command()
@click.option(
    "--config",
    type=FILE,
    help=f"The file to write; default: $GATEWAY_CONFIG, {LOCAL_CONFIG}.",
)
@click.option(
    "--state-dir", type=FILE, default=Path("var"), help="The state directory; default: var."
)
@click.option("--preset", help="A platform or local server, such as openai, azure or ollama.")
@click.option(
    "--format",
    "format_",
    type=click.Choice([each.value for each in Format]),
    help="The upstream's format.",
)
@click.option("--url", help="The upstream's base address.")
@click.option("--key", help="Where its key is: ${NAME}, file:/path or none.", callback=_check_key)
@click.option(
    "--model", "models", multiple=True, help="A model of the upstream, or all; repeatable."
)
@click.option(
    "--from-env",
    is_flag=True,
    help="Take OPENAI_API_KEY, ANTHROPIC_API_KEY, and …_BASE_URL and …_MODEL of each; without a "
    "model all of the upstream's own list, which the gateway reads.",
)
@click.option("--from", "source", type=FILE, help="Take over the config.yaml of a LiteLLM proxy.")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
@json_option
def init(
    config: Path | None,
    state_dir: Path,
    preset: str | None,
    format_: str | None,
    url: str | None,
    key: str | None,
    models: tuple[str, ...],
    from_env: bool,
    source: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write a configuration with comments for one upstream.

    What is not given as an option is asked for. With --from-env, for the upstreams whose variables
    are set; their values are not written, but references to them. With --from, for those of another
    gateway: the file says what of it has no counterpart here.
    """
    file = config or Path(os.environ.get("GATEWAY_CONFIG") or LOCAL_CONFIG)
    if file.exists() and not force:
        raise CommandRefused(
            f"{file} exists already: write another file with --config FILE, or replace it with "
            "--force"
        )
    options = preset or format_ or url or key
    imported = None
    upstreams: list[Upstream] = []
    if source is not None:
        if options or models or from_env:
            raise click.UsageError("--from FILE finds upstreams and models itself.")
        imported = read_litellm(source)
    elif from_env:
        if options:
            raise click.UsageError("--from-env finds preset, format, address and key itself.")
        upstreams = _from_environment(os.environ, models)
    elif preset:
        upstreams = [_of_preset(preset, format_, url, key, models)]
    else:
        upstreams = [_ask(Format(format_) if format_ else None, url, key, models)]
    text = (
        imported.render(state_dir, source)
        if imported is not None and source is not None
        else render_config(upstreams, state_dir)
    )
    with report_config_errors(as_json=as_json):
        parse_config(text, str(file))
    _write(file, text, force=force)
    option = "" if find_config() == file else f" --config {file}"
    commands = [f"gateway {rest}{option}" for rest in ("check", "key mint --name me", "serve")]
    if as_json:
        channels = [asdict(each) for each in upstreams] if imported is None else imported.channels
        report = {"file": str(file), "channels": channels, "next": commands}
        print_json(report if imported is None else {**report, "left_out": imported.left_out})
        return
    names = [each.name for each in upstreams] if imported is None else imported.names
    click.echo(f"{file}: written ({', '.join(names)}). Next:")
    for command in commands:
        click.echo(f"  {command}")
    if imported is not None and imported.left_out:
        print_note(f"Left out, see the head of {file}: {len(imported.left_out)} settings.")


def render_config(upstreams: Sequence[Upstream], state_dir: Path) -> str:
    """The text of a configuration file."""
    stated = {
        model: _MODEL.format(id=_quote(model), family=_family(model, each.format))
        for each in upstreams
        for model in each.models
        if each.models != _ALL
    }
    return _TEMPLATE.format(
        state_dir=_quote(str(state_dir)),
        models="\n".join(("models:" if stated else "# models:", *stated.values())),
        channels="\n".join(
            _CHANNEL.format(
                properties="\n    ".join(each.properties),
                models="all" if each.models == _ALL else _quote(list(each.models)),
                key=_quote(each.key),
            )
            for each in upstreams
        ),
    )


def _family(model: str, format: Format) -> str:
    is_alpha = format is Format.MESSAGES or model.startswith(("alpha", "claude"))
    return "alpha" if is_alpha else "beta"


def _quote(value: str | list[str]) -> str:
    """JSON is also YAML."""
    return orjson.dumps(value).decode()


def _from_environment(env: Mapping[str, str], models: Sequence[str]) -> list[Upstream]:
    found = [known for known in _KNOWN if env.get(f"{known.prefix}_API_KEY")]
    if not found:
        names = " nor ".join(f"{known.prefix}_API_KEY" for known in _KNOWN)
        raise click.UsageError(f"Neither {names} is set.")
    if models and len(found) > 1:
        names = " and ".join(f"{known.prefix}_MODEL" for known in found)
        raise click.UsageError(f"--model does not say of which upstream: set {names}.")
    return [known.read(env, models) for known in found]


def _of_preset(
    name: str, format: str | None, url: str | None, key: str | None, models: tuple[str, ...]
) -> Upstream:
    """Asks for what the preset leaves open."""
    preset = presets().get(name)
    if preset is None:
        raise click.BadParameter(f"it is one of {', '.join(presets())}.", param_hint="--preset")
    formats = preset["formats"]
    format = format or next(iter(formats))
    if format not in formats:
        raise click.BadParameter(f"{name} has {', '.join(formats)}.", param_hint="--format")
    if url is None and "example" in preset:
        url = _prompt("--url", f"Its base address ({preset['example']})")
    if not models:
        models = tuple(_prompt("--model", "Its models, separated by spaces, or all").split())
    if key is None:
        key = f"${{{preset['variable']}}}" if "variable" in preset else NO_KEY
    return Upstream(name, Format(format), url or "", key, models, is_preset=True)


def _ask(
    format: Format | None, url: str | None, key: str | None, models: tuple[str, ...]
) -> Upstream:
    """Asks for what is missing."""
    if format is None:
        choice = click.Choice([each.value for each in Format])
        format = Format(_prompt("--format", "Format of the upstream", type=choice))
    if url is None:
        example = "without /v1" if format is Format.MESSAGES else "with /v1"
        url = _prompt("--url", f"Its base address ({example})")
    if not models:
        models = tuple(_prompt("--model", "Its models, separated by spaces, or all").split())
    if key is None:
        question = "Where its key is (${NAME}, file:/path or none)"
        key = _prompt("--key", question, value_proc=_check_reference)
    return Upstream("main", format, url, key, models)


def _prompt(option: str, question: str, **how: Any) -> str:
    """The answer that `option` would give. Raises UsageError at the end of the input."""
    try:
        return str(click.prompt(question, err=True, **how))
    except click.Abort as error:
        if isinstance(error.__context__, EOFError):
            click.echo(err=True)
            raise click.UsageError(f"The input has ended: give {option} as well.") from None
        raise


def _write(file: Path, text: str, *, force: bool) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w" if force else "x", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise CommandRefused(f"{file} cannot be written: {error.strerror}") from None
