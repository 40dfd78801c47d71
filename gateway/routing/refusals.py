"""What an upstream's refusal names: values of the request that it does not take, or a proof of
earlier reasoning; and the memory of both.

A value is the path of a field without the places in lists (`tools.input_examples`), `beta:NAME` of
a header, or `tool:TYPE`. Whether the request has it, and can do without, is for `wire.refused`.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Final

from gateway.core.events import Failure, FailureKind, ProofLoss

UNSIGNED_CALLS: Final = "unsigned_calls"
"""The value that an upstream refuses that wants a thought signature with every call."""
LIFETIME: Final = 24 * 3600 * 1_000_000
"""Microseconds for which a refusal is remembered: an upstream may learn what it did not know."""
TRIAL: Final = 30 * 1_000_000
"""The same until a request without the value was accepted: errors also quote texts of clients."""
_MAX_MODELS: Final = 1000
_MAX_VALUES: Final = 32
_MAX_PROOFS: Final = 20_000
"""Of an account."""
_STATUSES: Final = (400, 422)
_MAX_CHARS: Final = 2000

_Q: Final = r"""\\?["'`]"""
_FIELD: Final = r"[A-Za-z_][\w.\[\]-]{0,120}"
_BETAS: Final = re.compile(rf"Unexpected value\(s\) ([^\n]{{1,1000}}?) for the {_Q}anthropic-beta")
_BETA: Final = re.compile(rf"{_Q}([\w.-]{{1,120}}?){_Q}")
_TOOL_TYPES: Final = re.compile(
    rf"tools\.\d+: Input tag {_Q}([\w.-]{{1,120}}?){_Q} found using {_Q}type{_Q} does not match"
    rf"|\btool (?:type )?{_Q}([\w.-]{{1,120}}?){_Q} is not supported"
    rf"|unsupported tool type:? {_Q}?([\w.-]{{1,120}})",
    re.IGNORECASE,
)
_TOOL_PARAM: Final = re.compile(r"tools\[\d+\]\.type")
_INVALID_VALUE: Final = re.compile(rf"Invalid value: {_Q}([\w.-]{{1,120}}?){_Q}")
_LOCATION: Final = re.compile(r"""\\?["']loc\\?["']: ?[\[(]([^\])]{1,200})[\])]""")
_EXTRA_FORBIDDEN: Final = re.compile(r"extra_forbidden|Extra inputs are not permitted")
_NESTED: Final = re.compile(
    rf"Unknown name {_Q}({_FIELD}?){_Q} at {_Q}({_FIELD}?){_Q}"
    rf"|{_Q}({_FIELD}?){_Q} : property {_Q}({_FIELD}?){_Q} is unsupported"
)
_FIELDS: Final = re.compile(
    rf"({_FIELD}): Extra inputs are not permitted"
    r"|(?:unknown|unsupported|unrecognized|unexpected)\s(?:request\s)?"
    r"(?:parameter|argument|field|key|property|name)(?:s|\(s\))?(?: supplied| in object)?\s?"
    rf":?\s?({_Q}?{_FIELD}?{_Q}(?:, {_Q}{_FIELD}?{_Q}){{0,7}}|{_FIELD}(?:, {_FIELD}){{0,7}})"
    rf"|unsupported value:\s{_Q}({_FIELD}?){_Q} does not support [^\n]{{0,100}}?only the default"
    rf"|property {_Q}({_FIELD}?){_Q} is (?:unsupported|not supported|not allowed)"
    rf"|\({_Q}({_FIELD}?){_Q} was unexpected\)"
    rf"|{_Q}({_FIELD}?){_Q}(?: \w+)? is (?:not |un)(?:supported|permitted|allowed|recognized)\b"
    r"|\b(?:does|do) not support (?:the |parameters?:? |fields?:? )*"
    rf"{_Q}?({_FIELD})",
    re.IGNORECASE,
)
_NAME: Final = re.compile(_FIELD)
_PLACE: Final = re.compile(r"\[\d+\]|\.\d+(?=\.|$)")


def refused_values(failure: Failure) -> tuple[str, ...]:
    """The values that the refusal may mean; none where it names no value, or is another failure."""
    if failure.kind is not FailureKind.RESPONSE or failure.status not in _STATUSES:
        return ()
    for text in (failure.message[:_MAX_CHARS], (failure.body or "")[:_MAX_CHARS]):
        if names := tuple(dict.fromkeys(_values(text, failure))):
            return names[:_MAX_VALUES]
    return ()


def _values(text: str, failure: Failure) -> Iterator[str]:
    if betas := _BETAS.search(text):
        yield from (f"beta:{name}" for name in _BETA.findall(betas[1]))
        return
    for match in _TOOL_TYPES.finditer(text):
        yield f"tool:{next(filter(None, match.groups()))}"
    if _TOOL_PARAM.fullmatch(failure.param or "") and (value := _INVALID_VALUE.search(text)):
        yield f"tool:{value[1]}"
    if _EXTRA_FORBIDDEN.search(text):
        for location in _LOCATION.findall(text):
            yield _path(".".join(re.findall(r"\w+", location)))
    nested = [match.groups() for match in _NESTED.finditer(text)]
    yield from (_path(f"{parent or at}.{name or field}") for name, parent, at, field in nested)
    if failure.code in ("unknown_parameter", "unsupported_parameter") and failure.param:
        yield _path(failure.param)
    for match in _FIELDS.finditer(text):
        found = next(filter(None, match.groups()))
        yield from (_path(name) for name in _NAME.findall(found))


def _path(name: str) -> str:
    return _PLACE.sub("", name).removeprefix("body.").strip(".")


_UNSIGNED: Final = re.compile(r"missing a [\\`'\"]{0,2}thought_?signature", re.IGNORECASE)
_PREFIX: Final = re.compile(
    r"bound to a different conversation|blocks in the latest assistant message cannot be modified",
    re.IGNORECASE,
)
_ACCOUNT: Final = re.compile(
    r"organi[sz]ation_id did not match|bound to a different (?:account|organi[sz]ation|workspace)",
    re.IGNORECASE,
)
_PROOF: Final = re.compile(
    r"invalid_encrypted_content|thinking_signature_invalid"
    r"|encrypted[ _]content\b[^\n]{0,300}?\bcould not be (?:verified|decrypted|parsed|read)"
    r"|(?:could not|failed to|cannot|unable to) (?:decrypt|verify)\b[^\n]{0,80}?"
    r"(?:encrypted|reasoning|thinking|signature)"
    r"|(?:invalid|corrupted)\W{1,3}(?:thought[ _]?)?signature"
    r"|thought[ _]?signature is (?:not valid|invalid)"
    r"|invalid\W{1,3}data\W{1,3}in\W{1,3}redacted_thinking"
    r"|expected \W{0,2}thinking\W{0,2} or \W{0,2}redacted_thinking"
    r"|provided without its required (?:following item|\W?reasoning\W? item)",
    re.IGNORECASE,
)


def refused_proof(failure: Failure) -> ProofLoss | str | None:
    """The reason of a refusal of earlier reasoning, `UNSIGNED_CALLS` where it is missing with a
    call; None if it is another failure. Codes vary: null, 0, or none at all."""
    if failure.kind is not FailureKind.RESPONSE or not 400 <= (failure.status or 0) < 500:
        return None
    text = f"{failure.code}\n{failure.message[:_MAX_CHARS]}\n{(failure.body or '')[:_MAX_CHARS]}"
    if _UNSIGNED.search(text):
        return UNSIGNED_CALLS
    if _PREFIX.search(text):
        return ProofLoss.PREFIX_CHANGED
    if _ACCOUNT.search(text):
        return ProofLoss.ACCOUNT_SWITCHED
    return ProofLoss.REFUSED if _PROOF.search(text) else None


_COMPACTION: Final = re.compile(
    rf"\bcompaction_trigger\b|\bInput tag {_Q}compact|\binvalid value:? {_Q}compact"
    r"|\b(?:unknown|unsupported|unrecogni[sz]ed|unexpected)\b[^\n]{0,80}\bcompact"
    r"|\bcompact(?:ion|_20)[^\n]{0,40}\bnot (?:supported|available|enabled|allowed|permitted)",
    re.IGNORECASE,
)
_COMPACTION_FIELDS: Final = ("context_management", "beta:compact-")


def refuses_compaction(failure: Failure, last_item: int | None) -> bool:
    """Tells whether the upstream refused a request because it wants a compaction, not because of
    its threshold; `last_item` is the index of the item of the input that wants it now."""
    if failure.kind is not FailureKind.RESPONSE or failure.status not in _STATUSES:
        return False
    if any(name.startswith(_COMPACTION_FIELDS) for name in refused_values(failure)):
        return True
    text = f"{failure.param}\n{failure.message[:_MAX_CHARS]}\n{(failure.body or '')[:_MAX_CHARS]}"
    if last_item is not None and re.search(rf"\binput[.\[]{last_item}\b", text):
        return True
    return _COMPACTION.search(text) is not None


AccountRef = tuple[str, str]
"""As in `health`, which this module must not import: the failure policy reads refusals."""

UpstreamModel = tuple[str, str]
"""A channel, and the name of its upstream for the model."""


class Refusals:
    """The memory of this process; times are Unix microseconds. `on_learn` is called with values of
    which an upstream has confirmed that it refuses them, and until when. `values` by upstream model
    and `proofs` by account: when each will be forgotten, and of a proof its hash and why it was
    refused."""

    def __init__(self) -> None:
        self.on_learn: Callable[[UpstreamModel, Sequence[str], int], None] | None = None
        self.values: OrderedDict[UpstreamModel, dict[str, int]] = OrderedDict()
        self.proofs: dict[AccountRef, OrderedDict[int, tuple[int, ProofLoss]]] = {}

    def add_values(
        self, model: UpstreamModel, names: Sequence[str], now: int, lifetime: int = LIFETIME
    ) -> None:
        self.adopt(model, names, now + lifetime)
        if names and lifetime == LIFETIME and self.on_learn is not None:
            self.on_learn(model, names, now + lifetime)

    def adopt(self, model: UpstreamModel, names: Iterable[str], until: int) -> None:
        """Adds values that another replica has learned."""
        known = self.values.setdefault(model, {})
        self.values.move_to_end(model)
        known |= dict.fromkeys(names, until)
        while len(known) > _MAX_VALUES:
            del known[next(iter(known))]
        if len(self.values) > _MAX_MODELS:
            self.values.popitem(last=False)

    def values_of(self, model: UpstreamModel, now: int) -> tuple[str, ...]:
        known = self.values.get(model, {})
        for name in [name for name, until in known.items() if until <= now]:
            del known[name]
        return tuple(known)

    def confirmed(self, model: UpstreamModel, now: int) -> tuple[str, ...]:
        """Those that the upstream has accepted a request without."""
        known = self.values.get(model, {}).items()
        return tuple(name for name, until in known if until > now + TRIAL)

    def add_proofs(self, ref: AccountRef, hashes: Iterable[int], why: ProofLoss, now: int) -> None:
        known = self.proofs.setdefault(ref, OrderedDict())
        for each in hashes:
            known[each] = now + LIFETIME, why
        while len(known) > _MAX_PROOFS:
            known.popitem(last=False)

    def proof(self, ref: AccountRef, hash: int, now: int) -> ProofLoss | None:
        """Why the account refused a proof; None if it did not."""
        known = self.proofs.get(ref)
        until, why = (known and known.get(hash)) or (0, None)
        return why if until > now else None

    def retain(self, refs: Set[AccountRef]) -> None:
        """Forgets what channels and accounts refused that are no longer the same."""
        channels = {channel for channel, _ in refs}
        for model in [model for model in self.values if model[0] not in channels]:
            del self.values[model]
        for ref in self.proofs.keys() - refs:
            del self.proofs[ref]
