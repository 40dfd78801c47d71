"""Masks secrets in the text of a configuration file, so that people can read and edit the rest.

A mask such as `<secret 1>` is text in the place of a secret, with its quotes: what is revealed is
what was hidden, byte for byte. As a key it would be refused, because it looks like a sample.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

import yaml

from gateway.config.document import compose
from gateway.config.schema import Config
from gateway.config.secrets import NO_KEY

_REFERENCE: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}|file:.*|")
_MASK: Final = re.compile(r"<secret \d+>")
_ANYWHERE: Final = (
    _MASK.pattern,
    r"\b(?:sk-|gwa_)[A-Za-z0-9_\-*.]{6,}",
    r"\b(?:Bearer|Basic)\s+[A-Za-z0-9._~+/\-]{8,}=*",
    r"(?<=://)[^\s/@\"':]{0,99}:[^\s/@\"']{1,999}(?=@)",
    r"(?i:(?<=key=)|(?<=token=)|(?<=secret=)|(?<=password=)"
    r"|(?<=[\W_]key: )(?<!per_key: )|(?<=[\W_]token: )|(?<=[\W_]secret: )|(?<=[\W_]password: ))"
    r"(?!\"?\$\{|\"?file:|<secret )[^\s,{}\[\]]{6,}",
)
"""Secrets by their form or by the word before them, also in comments."""
_MIN_REPEATED: Final = 8
"""Characters of a secret that is masked wherever it is, in a comment for example."""

Schema = dict[str, Any]


class SecretMask:
    """One secret has one mask in all texts that are hidden: a difference of two texts shows which
    secrets differ."""

    def __init__(self) -> None:
        self._masks: dict[str, str] = {}

    def hide(self, text: str, file: str, *, unknown: bool = True) -> str:
        """The text with masks, by default also of texts in places that the schema does not know.
        Raises ConfigError where it is not YAML: without its structure nobody knows what is a
        secret. `file` is its name in errors."""
        node = compose(text, file)
        spans = [] if node is None else sorted(_secret_spans(node, text, unknown))
        parts: list[str] = []  # texts and masks in turn
        found: set[str] = set()
        end = 0
        for start, stop in spans:
            secret = text[start:stop]
            found.add(secret.strip("\"'"))
            parts += text[end:start], self._mask(secret)
            end = stop
        repeated = sorted((each for each in found if len(each) >= _MIN_REPEATED), key=len)
        forms = (_MASK.pattern, *map(re.escape, reversed(repeated)), *_ANYWHERE[1:])
        pattern = re.compile("|".join(forms))
        parts.append(text[end:])
        return "".join(
            # by lines, so that other threads run between them
            part if at % 2 else pattern.sub(lambda match: self._mask(match[0]), part)
            for at, whole in enumerate(parts)
            for part in ((whole,) if at % 2 else whole.splitlines(keepends=True))
        )

    def reveal(self, text: str) -> str:
        """The text with the secrets of its masks; masks of no secret remain."""
        secrets = {mask: secret for secret, mask in self._masks.items()}
        return _MASK.sub(lambda mask: secrets.get(mask[0], mask[0]), text)

    def known(self) -> dict[str, str]:
        """Secret → mask, in the order in which they were found."""
        return dict(self._masks)

    def _mask(self, secret: str) -> str:
        return self._masks.setdefault(secret, f"<secret {len(self._masks) + 1}>")


def public_config(config: Config, *, with_defaults: bool = False) -> Any:
    """The configuration as JSON without secrets, and without defaults unless they are wanted."""
    return _without_forms(config.model_dump(mode="json", exclude_defaults=not with_defaults))


def _without_forms(value: Any) -> Any:
    """The JSON without what looks like a secret, such as a password in the address of a proxy."""
    if isinstance(value, dict):
        return {name: _without_forms(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_forms(each) for each in value]
    is_text = isinstance(value, str)
    return re.sub("|".join(_ANYWHERE), "**********", value) if is_text else value


def _secret_spans(root: yaml.Node, text: str, unknown: bool) -> Iterator[tuple[int, int]]:
    """The places of the secrets: options that the schema declares as such, and with `unknown` texts
    in places that it does not know, such as a misspelt option."""
    for node, schemas in _scalars(root, _expand([_schema()])):
        is_text = node.tag.endswith(":str")
        is_secret = any(each.get("format") == "password" for each in schemas)
        if not (is_secret or (unknown and is_text and not schemas)) or node.value == NO_KEY:
            continue
        if not _REFERENCE.fullmatch(node.value):
            start = node.start_mark.index
            yield start, start + len(text[start : node.end_mark.index].rstrip())


def _scalars(
    node: yaml.Node, schemas: Sequence[Schema]
) -> Iterator[tuple[yaml.ScalarNode, Sequence[Schema]]]:
    """Every scalar, with the schemas that its place has; none where the place is unknown."""
    if isinstance(node, yaml.ScalarNode):
        yield node, schemas
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _scalars(value, _expand(_of_key(schemas, str(key.value))))
    else:
        items = [each.get("items", each) for each in schemas if each.get("items") or not each]
        for value in node.value:
            yield from _scalars(value, _expand(items))


def _of_key(schemas: Sequence[Schema], key: str) -> Iterator[Schema]:
    for schema in schemas:
        if not schema:  # any value
            yield schema
        elif key in schema.get("properties", {}):
            yield schema["properties"][key]
        else:
            yield from schema.get("patternProperties", {}).values()
            others = schema.get("additionalProperties", False)
            if others is not False:
                yield {} if others is True else others


def _expand(schemas: Iterator[Schema] | Sequence[Schema]) -> list[Schema]:
    """The schemas without references and alternatives."""
    plain: list[Schema] = []
    for schema in schemas:
        name = schema.get("$ref", "").rpartition("/")[2]
        inner = [_schema()["$defs"][name]] if name else []
        for kind in ("anyOf", "oneOf", "allOf"):
            inner += schema.get(kind, ())
        plain += [*_expand(inner), *([schema] if not inner or "properties" in schema else ())]
    return plain


@cache
def _schema() -> Schema:
    return Config.model_json_schema()
