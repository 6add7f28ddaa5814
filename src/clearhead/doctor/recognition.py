"""Makes a `Patient` from a model. Common signatures are recognised by the names of arguments and by
trying them. The recognised call is printed; for other models, the user writes five lines."""

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import nn

from . import abilities
from .adapters import adapter_text, layer_for_floats
from .attention_trace import trace_attention
from .calling import Signature, forms
from .calls import CallInputs, Calls
from .causal_masks import with_causal_mask
from .errors import DoctorError
from .form import CALL_ERRORS, Form
from .forms import settle
from .masks import BEST, optional_masks, score
from .patient import KINDS, ModelKind, Patient
from .row_limit import with_row_limit
from .texts import Language, error_text, nearest_text

_log = logging.getLogger(__name__)

_LIMITS = (
    "max_position_embeddings",
    "n_positions",
    "max_length",
    "block_size",
    "max_seq_len",
    "context_length",
    "n_ctx",
    "max_len",
)
_BATCHES = ("max_batch_size", "batch_size")
_MOST_ROWS, _SHORTEST, _LONGEST = 64, 4, 512
_PADS = (
    "pad_id",
    "pad_token_id",
    "pad_idx",
    "trg_pad_idx",
    "tgt_pad_idx",
    "src_pad_idx",
    "padding_idx",
)


class RecognitionError(DoctorError):
    """Raised if the doctor does not know how to call the model."""


def recognise(
    model: nn.Module,
    *,
    kind: ModelKind | None = None,
    vocab_size: int | None = None,
    pad_id: int | None = None,
    max_length: int | None = None,
    calls: Calls | None = None,
    seed: int = 0,
    fresh: bool = True,
    language: Language = "en",
) -> Patient:
    """Recognise how to call the model. Values that are not given are read from the model, if it has
    them."""
    if next(model.parameters(), None) is None:
        raise RecognitionError(error_text("no_parameters", language))
    if kind is not None and kind not in KINDS:
        remedy = nearest_text(kind, KINDS, language)
        raise RecognitionError(error_text("wrong_kind", language, kind=kind, nearest=remedy))
    kind = kind or stated_kind(model)
    if kind is None:
        raise RecognitionError(error_text("no_kind", language))
    how = (vocab_size, pad_id, max_length, calls, seed, fresh, language)
    try:
        return _recognised_as(kind, model, *how)
    except RecognitionError:
        if kind != "decoder" or calls is not None:
            raise
        # A decoder that returns classes of whole sequences is examined as what it is used for.
        patient = _classifier(model, *how)
        if patient is None:
            raise
        return patient


def _classifier(model: nn.Module, *how: Any) -> Patient | None:
    """Return the patient if the model is a classifier, whose output is one vector for a sequence.
    The vector's size must not be that of the vocabulary: a decoder that returns only the last
    logits has such a vector."""
    try:
        patient = _recognised_as("encoder", model, *how)
    except RecognitionError:
        return None
    width = patient.logits(patient.plain, patient.draw(2)).shape[-1]
    return patient if patient.pooled and width != patient.vocab_size else None


def _recognised_as(
    kind: ModelKind,
    model: nn.Module,
    vocab_size: int | None,
    pad_id: int | None,
    max_length: int | None,
    calls: Calls | None,
    seed: int,
    fresh: bool,
    language: Language,
) -> Patient:
    """Return the patient for the first way of calling, and the first size of the vocabulary, that
    the model accepts."""
    problems: list[RecognitionError] = []
    sizes = [vocab_size] if vocab_size else _vocab_sizes(model, language)
    ways = _unusual_sizes(model, problems) if calls is None else iter([{}, {"max_rows": 1}])
    for way, size in ((way, size) for way in ways for size in sizes):
        form = Form(None, size)  # a first guess, replaced unless `calls` makes it needless
        patient = Patient(
            model,
            kind,
            size,
            calls or Calls(logits=form.logits),
            pad_id=pad_id if pad_id is not None else _pad_id(model),
            max_length=max_length or _setting(model, _LIMITS),
            seed=seed,
            fresh=fresh,
            recognised={"kind": kind, "vocabulary": f"{size:,}"},
        )
        patient = replace(patient, **way)
        try:
            if calls is not None:
                return with_row_limit(_with_lengths(patient, language))
            patient, form = _with_form(patient, language)
            patient = with_row_limit(patient, form)
            patient, form = _with_masks(patient, replace(form, max_rows=patient.max_rows))
            if patient.exact_length is not None:
                shown = {"length": str(patient.exact_length)}
                patient = replace(patient, recognised={**patient.recognised, **shown})
        except RecognitionError as error:
            problems.append(error)
        else:
            if patient.pad_id is None and patient.kind != "decoder":
                patient = replace(patient, pad_id=_hidden_token(patient))
            return _with_abilities(patient, form)
    # Tokens beyond a table are the doctor's own mistake: that size is not the vocabulary's.
    raise min(problems[: len(sizes)], key=lambda error: str(error).count("IndexError"))


def _unusual_sizes(model: nn.Module, problems: list[RecognitionError]) -> Iterator[dict[str, Any]]:
    """Yield batches and lengths of any size; then, if no call was accepted, the special sizes that
    some models need: one sequence at a time, a batch of one size, or sequences of one length. If no
    setting names that length, torch's error for another length does."""
    yield {}
    yield {"max_rows": 1}
    batch = _setting(model, _BATCHES)
    if batch is not None and 1 < batch <= _MOST_ROWS:
        yield {"max_rows": batch, "exact_rows": True}
    said = [int(n) for error in problems for n in re.findall(r"\b\d{1,4}\b", str(error))]
    known = _setting(model, _LIMITS)
    lengths = said if known is None else [known, *said]
    for length in dict.fromkeys(lengths):
        if _SHORTEST < length <= _LONGEST:
            yield {"exact_length": length, "max_length": length}


def stated_kind(model: nn.Module) -> ModelKind | None:
    """Return the kind that a model states, if it does."""
    config = getattr(model, "config", None)
    family = getattr(config, "family", None)
    if family in KINDS:
        return family
    if getattr(config, "is_encoder_decoder", False):
        return "encoder-decoder"
    can_generate = getattr(model, "can_generate", None)
    if callable(can_generate):
        return "decoder" if can_generate() else "encoder"
    return None


def _setting(model: nn.Module, names: tuple[str, ...]) -> int | None:
    for owner in (getattr(model, "config", None), model):
        for name in names:
            value = owner.get(name) if isinstance(owner, dict) else getattr(owner, name, None)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def _vocab_sizes(model: nn.Module, language: Language) -> list[int]:
    """Yield the sizes of the vocabulary: the size that the model states, or else the sizes of its
    tables, one of which is the vocabulary's."""
    known = _setting(model, ("vocab_size", "n_vocab", "num_tokens"))
    if known is not None:
        return [known]
    tables = _tables(model)
    if not tables:
        if layer := layer_for_floats(model):
            raise RecognitionError(error_text("floats", language, layer=layer))
        raise RecognitionError(error_text("no_vocabulary", language))
    return tables


def _tables(model: nn.Module) -> list[int]:
    """Return the sizes of a model's tables, the largest first. If no nn.Embedding is a table, a
    matrix that belongs to none of torch's layers may be one: `self.table[tokens]`."""
    sizes = {m.num_embeddings for m in model.modules() if isinstance(m, nn.Embedding)}
    if not sizes:
        owners = [m for m in model.modules() if not _is_layer_of_torch(m)]
        bare = [p for owner in owners for p in owner.parameters(recurse=False) if p.dim() == 2]
        sizes = {len(parameter) for parameter in bare}
    return sorted(sizes, reverse=True)


def _is_layer_of_torch(module: nn.Module) -> bool:
    holders = ("torch.nn.modules.container", "torch.nn.modules.module")
    defined = type(module).__module__
    return defined.startswith("torch.nn.modules.") and defined not in holders


def _pad_id(model: nn.Module) -> int | None:
    said = [_setting(module, _PADS) for module in model.modules()]
    indices = [m.padding_idx for m in model.modules() if isinstance(m, nn.Embedding)]
    return next((index for index in [said[0], *indices, *said] if index is not None), None)


def _hidden_token(patient: Patient) -> int | None:
    """Return the padding token of a model that does not state it: the first of its lowest tokens at
    which self-attention of the source (or of an encoder's tokens) never looks."""
    role = "source" if patient.has_source else "tokens"
    if patient.one_sequence or patient.equal_lengths:
        return None
    length = patient.source_length if patient.has_source else patient.length
    inputs, model = patient.draw(2), patient.plain

    def looked_at(token: int) -> bool:
        tokens = getattr(inputs, role).clone()
        tokens[:, 1] = token
        given = replace(inputs, **{role: tokens})
        seen = trace_attention(model, lambda: patient.logits(model, given), {(length, length)})
        return not seen or bool((seen[0].weights[..., 1] > 0).any())

    try:
        usual = int(getattr(inputs, role).max())
        if length < 3 or not looked_at(usual):
            return None
        return next((token for token in range(4) if not looked_at(token)), None)
    except CALL_ERRORS:
        return None


def _with_form(patient: Patient, language: Language) -> tuple[Patient, Form]:
    """Find the arguments that are tokens, and where the logits are in the output."""
    problems: dict[str, str] = {}
    candidates: list[tuple[float, Patient, Form, str]] = []
    for form, shown in forms(patient):
        if candidates and form.length_first:
            break  # it answers the other way round
        one = patient.kind == "encoder-decoder" and not (form.two_sequences or form.methods)
        try:
            settled, tried = settle(replace(patient, one_sequence=one), form)
            points = score(settled, tried) if tried.masks else BEST
        except CALL_ERRORS as error:
            text = (str(error).splitlines() or [""])[0]
            problems.setdefault(shown, f"{type(error).__name__}: {text}")
            continue
        candidates.append((points, settled, tried, shown))
        if points >= BEST:
            break
    if candidates:
        # Of several ways to fill masks, the one under which they do what masks are for.
        _, settled, form, shown = max(candidates, key=lambda one: one[0])
        if settled.one_sequence and _sees_only_the_past(settled, form):
            first = Signature.of(settled).first
            raise RecognitionError(error_text("one_input", language, argument=first))
        recognised = {**settled.recognised, "call": shown + _how(form)}
        recognised["vocabulary"] = f"{settled.vocab_size:,}"
        return replace(settled, recognised=recognised), form
    raise RecognitionError(adapter_text(patient, problems, language))


def _sees_only_the_past(patient: Patient, form: Form) -> bool:
    """Tell whether the last token changes no logits before it, as in a decoder. With one argument
    for source and target, an encoder sees the whole of it."""
    inputs = patient.draw(2)
    tokens = inputs.tokens.clone()
    tokens[:, -1] = tokens[:, -2]
    with torch.no_grad():
        first, second = (
            form.logits(patient.plain, replace(inputs, tokens=each))[:, :-1]
            for each in (inputs.tokens, tokens)
        )
    return torch.allclose(first, second)


def _how(form: Form) -> str:
    """Describe what is unusual about a call."""
    parts = []
    if form.head is not None:
        parts.append(f"logits = model.{form.head}(…)")
    if form.inside is not None:
        parts.append(f"logits: what {form.inside} returns")
    if form.pooled:
        parts.append(f"one vector of {form.vocab_size} for a sequence")
    if form.length_first:
        parts.append("(length, batch)")
    if form.shifts_itself:
        parts.append("the model shifts the target itself")
    return "".join(f"; {part}" for part in parts)


def _with_lengths(patient: Patient, language: Language) -> Patient:
    """Try a call that was given, also with a separate vocabulary of the source if there is a
    source, and with source and target of equal length if nothing else works."""
    problem: Exception | None = None
    calls = replace(patient.calls, logits=_with_all_real(patient.calls))
    sources = dict.fromkeys([*_tables(patient.model), patient.vocab_size])
    if patient.device.type != "cpu":  # where a token beyond a table ends the process
        sources = [patient.vocab_size]
    ways = product((False, True), sources) if patient.has_source else [(False, None)]
    for equal, source in ways:
        tried = replace(patient, equal_lengths=equal, source_vocab_size=source, calls=calls)
        inputs = tried.draw(3)
        if inputs.source is not None and source is not None:
            inputs.source[0, 0] = source - 1  # a token that a smaller table does not have
        try:
            with torch.no_grad():
                logits = tried.logits(tried.plain, inputs)
        except CALL_ERRORS as error:
            if problem is None or isinstance(problem, IndexError):
                problem = error
            continue
        wanted = (*inputs.tokens.shape, patient.vocab_size)
        shape = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        fits = shape[:2] == wanted[:2] and len(shape) == 3 and shape[2] >= wanted[2]
        if not fits and patient.kind != "encoder":
            raise RecognitionError(error_text("wrong_logits", language, found=shape, wanted=wanted))
        return tried
    raise RecognitionError(f"{type(problem).__name__}: {problem}")


def _with_all_real(calls: Calls) -> Callable[[nn.Module, CallInputs], torch.Tensor]:
    """Return a call for logits that always passes the masks that the model takes, even if every
    token is real."""

    def logits(model: nn.Module, inputs: CallInputs) -> torch.Tensor:
        sides = {"real": inputs.tokens, "source_real": inputs.source}
        missing = [r for r in calls.masks if getattr(inputs, r) is None and sides[r] is not None]
        ones = {role: torch.ones_like(sides[role], dtype=torch.bool) for role in missing}
        return calls.logits(model, replace(inputs, **ones))

    return logits


def _with_masks(patient: Patient, form: Form) -> tuple[Patient, Form]:
    unread: dict[str, str] = {}
    required = set(form.masks)
    if not form.methods:
        form = with_causal_mask(patient, form)
        form, unread = optional_masks(patient, form)
    roles = [role for role in ("real", "source_real") if role in form.masks]
    shown: dict[str, str] = {}
    for role, mask in form.masks.items():
        kind = role.split()[0]
        shown[kind] = f"{shown[kind]}; {mask}" if kind in shown else str(mask)
    causal = [m.argument for r, m in form.masks.items() if m.causal and r not in required]
    if form.flag is not None:
        causal.append(form.flag)
        shown["causal"] = f"{form.flag}=True"
    inverted = [m.argument for m in form.masks.values() if m.is_inverted]
    sides = frozenset({"right"} if any("lengths" in m.shape for m in form.masks.values()) else ())
    calls = replace(
        patient.calls,
        logits=form.logits,
        more_outputs=None if form.methods or form.one_by_one else form.more_outputs,
        masks=frozenset(roles),
        unread_masks=unread,
        inverted_masks=tuple(inverted),
        causal_mask=next(iter(causal), None),
        inner_length=1 if form.shifts_itself else 0,
        sides=sides or frozenset({"left", "right"}),
    )
    return replace(patient, calls=calls, recognised={**patient.recognised, **shown}), form


def _with_abilities(patient: Patient, form: Form) -> Patient:
    """Add the abilities that the model has: a loss, a cache, generation, attention weights."""
    for find in abilities.ALL:
        try:
            changes, shown = find(patient, form)
        except CALL_ERRORS as error:
            _log.info("%s: %s: %s", find.__name__, type(error).__name__, error)
            continue
        calls = replace(patient.calls, **changes)
        patient = replace(patient, calls=calls, recognised={**patient.recognised, **shown})
    return patient
