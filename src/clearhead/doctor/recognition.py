"""From a model to a `Patient`: common signatures are recognised, by the names of arguments and
by trying them. What was recognised is printed; what is not is five lines of the user's."""

import inspect
import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import torch
from torch import nn

from clearhead.doctor import abilities
from clearhead.doctor.form import CALL_ERRORS, Form, MaskForm, arguments_of
from clearhead.doctor.patient import KINDS, Calls, Kind, Patient, change_size
from clearhead.errors import ClearheadError, nearest

_log = logging.getLogger(__name__)

_ADAPTER = """Write how it is called, and pass it on:

    from clearhead.doctor import Calls, examine
    calls = Calls(logits=lambda model, inputs: model(inputs.tokens)["scores"])
    report = examine(model, kind="decoder", vocab_size=100, calls=calls)

inputs has .tokens and .source (batch, length), and .real and .source_real (True where a token
is real). Calls can hold loss, cached, generate and attention as well: see help(Calls)."""

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
# Arguments that say which tokens are real, or which are not; which of the two, and in which
# shape, is found by trying.
_MASKS = ("real", "attention_mask", "mask", "key_padding_mask", "padding_mask", "pad_mask")
_TARGET_MASKS = (
    "target_real",
    "decoder_attention_mask",
    "tgt_key_padding_mask",
    "tgt_padding_mask",
    "target_padding_mask",
    "target_mask",
    "tgt_mask",
)
_SOURCE_MASKS = (
    "source_real",
    "src_key_padding_mask",
    "src_padding_mask",
    "source_padding_mask",
    "source_mask",
    "src_mask",
    *_MASKS,
)


class RecognitionError(ClearheadError):
    """The doctor does not know how to call this model."""


def recognise(
    model: nn.Module,
    *,
    kind: Kind | None = None,
    vocab_size: int | None = None,
    pad_id: int | None = None,
    max_length: int | None = None,
    calls: Calls | None = None,
    seed: int = 0,
    fresh: bool = True,
) -> Patient:
    """What is not given is read from the model, if it says so itself."""
    if next(model.parameters(), None) is None:
        raise RecognitionError("the model has no parameters; is it a torch.nn.Module of layers?")
    if kind is not None and kind not in KINDS:
        raise RecognitionError(f"kind={kind!r} is not a choice; {nearest(kind, KINDS)}")
    kind = kind or _kind(model)
    problem: RecognitionError | None = None
    for size in [vocab_size] if vocab_size else _vocab_sizes(model):
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
        try:
            if calls is not None:
                return _with_lengths(patient)
            patient, form = _with_form(patient)
        except RecognitionError as error:
            problem = problem or error
        else:
            return _with_abilities(*_with_masks(patient, form))
    assert problem is not None
    raise problem


def _kind(model: nn.Module) -> Kind:
    config = getattr(model, "config", None)
    family = getattr(config, "family", None)
    if family in KINDS:
        return family
    if getattr(config, "is_encoder_decoder", False):
        return "encoder-decoder"
    can_generate = getattr(model, "can_generate", None)
    if callable(can_generate):
        return "decoder" if can_generate() else "encoder"
    raise RecognitionError(
        "kind is not given and the model does not say; "
        "pass kind='decoder', 'encoder' or 'encoder-decoder' (command: --kind decoder)"
    )


def _setting(model: nn.Module, names: tuple[str, ...]) -> int | None:
    for owner in (getattr(model, "config", None), model):
        for name in names:
            value = owner.get(name) if isinstance(owner, dict) else getattr(owner, name, None)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def _vocab_sizes(model: nn.Module) -> list[int]:
    """What the model says; else the sizes of its tables, one of which is the vocabulary's."""
    known = _setting(model, ("vocab_size", "n_vocab", "num_tokens"))
    if known is not None:
        return [known]
    tables = {m.num_embeddings for m in model.modules() if isinstance(m, nn.Embedding)}
    if not tables:
        raise RecognitionError(
            "vocab_size is not given and the model has no nn.Embedding to read it from; "
            "pass vocab_size=… (command: --vocab-size …)"
        )
    return sorted(tables, reverse=True)


def _pad_id(model: nn.Module) -> int | None:
    said = _setting(model, ("pad_id", "pad_token_id"))
    indices = [m.padding_idx for m in model.modules() if isinstance(m, nn.Embedding)]
    return next((index for index in [said, *indices] if index is not None), None)


def _with_form(patient: Patient) -> tuple[Patient, Form]:
    """Find the arguments that are tokens, and where the logits are in what comes back."""
    problems: list[str] = []
    for form, shown in _forms(patient):
        calls = Calls(logits=form.logits)
        one = patient.kind == "encoder-decoder" and not form.two_sequences
        try:
            tried = _with_lengths(replace(patient, calls=calls, one_sequence=one))
        except RecognitionError as error:
            problems.append(f"  {shown}\n    {error}")
        else:
            return replace(tried, recognised={**tried.recognised, "call": shown}), form
    names = ", ".join(arguments_of(patient.model))
    raise RecognitionError(
        f"forward({names}) was not recognised as that of kind={patient.kind!r}. Tried:\n"
        + "\n".join(problems)
        + f"\n{_ADAPTER}"
    )


def _forms(patient: Patient) -> Iterator[tuple[Form, str]]:
    """The forms to try, each with the way it is shown."""
    arguments = arguments_of(patient.model)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [name for name, argument in arguments.items() if argument.kind in positional]
    first, second = [*names, "tokens", "tokens"][:2]
    constants = {"return_dict": True} if "return_dict" in arguments else {}
    plain = Form(None, patient.vocab_size, constants=constants)
    if patient.kind == "encoder-decoder":
        two = replace(plain, two_sequences=True)
        if "decoder_input_ids" in arguments:
            shown = f"logits = model({first}, decoder_input_ids=…)"
            yield replace(two, tokens="decoder_input_ids"), shown
        elif len(names) >= 2:
            yield two, f"logits = model({first}, {second})"
    # An encoder-decoder that takes one sequence is examined as it is, and reported.
    yield plain, f"logits = model({first})"
    for name in {"targets", "labels"} & set(arguments):
        # nanoGPT returns the last position's logits only, unless it is given targets.
        yield replace(plain, targets=name), f"logits, loss = model({first}, {name}=…)"


def _with_lengths(patient: Patient) -> Patient:
    """Try a call, with source and target of equal length if nothing else works."""
    problem: Exception | None = None
    for equal in (False, True) if patient.has_source else (False,):
        tried = replace(patient, equal_lengths=equal)
        try:
            with torch.no_grad():
                tried.logits(tried.plain, tried.draw(3))
            return tried
        except CALL_ERRORS as error:
            problem = problem or error
    raise RecognitionError(f"{type(problem).__name__}: {problem}")


def _with_masks(patient: Patient, form: Form) -> tuple[Patient, Form]:
    roles = {"real": _MASKS}
    if patient.kind == "encoder-decoder" and patient.has_source:
        roles = {"real": _TARGET_MASKS, "source_real": _SOURCE_MASKS}
    for role, names in roles.items():
        mask = _find_mask(patient, form, role, names)
        if mask is not None:
            form = replace(form, masks={**form.masks, role: mask})
            patient = replace(patient, recognised={**patient.recognised, role: str(mask)})
    calls = replace(patient.calls, logits=form.logits, masks=frozenset(form.masks))
    return replace(patient, calls=calls), form


def _find_mask(patient: Patient, form: Form, role: str, names: tuple[str, ...]) -> MaskForm | None:
    """The argument is known by its name; its meaning, by passing a mask under which every token
    is real. The right one changes nothing."""
    inputs = patient.draw(3)
    tokens = inputs.tokens if role == "real" else inputs.source
    assert tokens is not None
    masked = replace(inputs, **{role: torch.ones_like(tokens, dtype=torch.bool)})
    model = patient.plain
    arguments = arguments_of(model)
    with torch.no_grad():
        plain = form.logits(model, inputs)
        for name, shape, (true_is_real, dtype) in product(
            [name for name in names if name in arguments],
            ("(batch, length)", "(batch, 1, length)", "(batch, 1, 1, length)"),
            ((True, torch.bool), (False, torch.bool), (True, torch.long)),
        ):
            mask = MaskForm(name, shape, true_is_real, dtype)
            try:
                logits = replace(form, masks={role: mask}).logits(model, masked)
            except CALL_ERRORS:
                continue
            if change_size(plain, logits) < 1e-4:
                return mask
    return None


def _with_abilities(patient: Patient, form: Form) -> Patient:
    """A loss, a cache, generation, attention weights: whatever there is."""
    for find in abilities.ALL:
        try:
            changes, shown = find(patient, form)
        except CALL_ERRORS as error:
            _log.info("%s: %s: %s", find.__name__, type(error).__name__, error)
            continue
        calls = replace(patient.calls, **changes)
        patient = replace(patient, calls=calls, recognised={**patient.recognised, **shown})
    return patient
