"""What else a model can do: a loss, a cache, generation, attention weights that it returns.

Each function returns the entries of `Calls` that it found and how they are shown, or raises one
of `CALL_ERRORS` where a trial failed; an ability that is not there is an empty answer.
"""

import math
import typing
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from . import feeding
from .caching import CONVENTIONS, with_mask
from .form import CALL_ERRORS, Form, arguments_of
from .generating import NOTHING, Found, find_generate
from .patient import CallInputs, Patient

_LABELS = ("labels", "lm_labels", "targets", "label", "gold")
Loss = Callable[[nn.Module, CallInputs, Tensor], Tensor]
_N_SPECIAL = 5
HOW_A_TARGET_COUNTS = ("not at all", "in the divisor", "like any other")
"""From the one that is surely ignored to the one that is not."""
_DOCUMENTS = ("doc_ids", "document_ids", "documents", "sequence_ids", "seq_ids")


def find_loss(patient: Patient, form: Form) -> Found:
    """`model(…, targets=…)` or `labels=…` that returns a loss beside the logits."""
    model = patient.plain
    name = next((n for n in _LABELS if n in arguments_of(model)), None)
    if form.inside is not None and patient.kind == "decoder" and form.targets is None:
        return {"own_loss": form.call}, {"loss": "loss = model(…)"}
    if form.drops_last and form.inside is None:

        def own_loss(model: nn.Module, inputs: CallInputs) -> Tensor:
            return _loss_in(form.call(model, inputs))

        with torch.no_grad():
            own_loss(model, patient.draw(patient.rows(2)))
        return {"own_loss": own_loss}, {"loss": "loss = model(…)"}
    if name is not None and form.shifts_itself and form.tokens is None:

        def labelled(model: nn.Module, inputs: CallInputs, targets: Tensor) -> Any:
            return form.call(model, replace(inputs, tokens=targets))

        return {"labelled": labelled}, {}
    if name is None or form.methods or form.shifts_itself or form.inside is not None:
        return NOTHING
    if form.pooled or form.vocab_size != patient.vocab_size:
        return _loss_of_classes(patient, form, name)

    def loss(model: nn.Module, inputs: CallInputs, targets: Tensor) -> Tensor:
        if not form.length_first:
            return _loss_in(form.call(model, inputs, **{name: targets}))
        given = targets.t().contiguous()
        output = form.call(model, inputs, **{name: given})
        targets.copy_(given.t())  # what the model has written into them is seen
        return _loss_in(output)

    # Hugging Face's word for "the inputs again, and the model shifts them".
    shift = 1 if name in ("labels", "lm_labels") and patient.kind == "decoder" else 0
    inputs = patient.draw(patient.rows(3))
    filled = _filled_token(patient, loss)
    if filled is not None:
        return {"fills": filled}, {"loss": f"loss = model(…, {name}=…), where tokens are {filled}"}
    taken: list[int] = []
    for ignored in (-100, -1, *([] if patient.pad_id is None else [patient.pad_id]), 0):
        targets = inputs.tokens.clone()
        targets[:, 0] = ignored
        try:
            with torch.no_grad():
                loss(model, inputs, targets)
        except (IndexError, RuntimeError):
            continue
        taken.append(ignored)
    if not taken:
        return NOTHING
    counts = {ignored: _how_it_counts(loss, model, inputs, ignored) for ignored in taken}
    ignored = min(taken, key=lambda one: HOW_A_TARGET_COUNTS.index(counts[one]))
    # Token 0 is the last that was tried: where it counts, none is known that does not.
    ignores = counts[ignored] != "like any other" or ignored in (-100, -1, patient.pad_id)
    abilities = {"loss": loss, "labelled": loss, "loss_shift": shift}
    abilities |= {"ignored": ignored, "ignores": ignores, **_from_labels(patient, form, name)}
    told = f", {ignored} is ignored" if ignores else ""
    return abilities, {"loss": f"loss = model(…, {name}=…){told}"}


def _loss_of_classes(patient: Patient, form: Form, name: str) -> Found:
    """Labels are classes, of whole sequences or of each token."""
    if form.length_first or form.exact_length is not None:
        return NOTHING

    def loss(model: nn.Module, inputs: CallInputs, labels: Tensor) -> Tensor:
        return _loss_in(form.call(model, inputs, **{name: labels}))

    inputs = patient.draw(patient.rows(3))
    labels = inputs.tokens % form.vocab_size
    with torch.no_grad():
        loss(patient.plain, inputs, labels[:, 0] if form.pooled else labels)
    return {"class_loss": loss}, {"loss": f"loss = model(…, {name}=…)"}


def _from_labels(patient: Patient, form: Form, name: str) -> dict[str, Any]:
    """An encoder-decoder that is given labels only makes what its decoder reads of them."""
    reads = arguments_of(patient.model).get(form.tokens or "")
    if not form.two_sequences or reads is None or reads.default is not None:
        return {}

    def from_labels(model: nn.Module, inputs: CallInputs, labels: Tensor) -> Tensor:
        output = form.call(model, inputs, **{name: labels, str(form.tokens): None})
        return form.returned_logits(output, inputs)

    inputs = patient.draw(patient.rows(2))
    try:
        with torch.no_grad():
            from_labels(patient.plain, inputs, inputs.tokens)
    except CALL_ERRORS:
        return {}
    return {"from_labels": from_labels}


def _filled_token(patient: Patient, loss: Loss) -> int | None:
    """The token that stands for what is to be predicted, where no other position is a target: such
    a model may see everything. Among ordinary tokens it finds nothing to learn."""
    model, inputs = patient.plain, patient.draw(patient.rows(3))
    places = torch.zeros_like(inputs.tokens, dtype=torch.bool)
    places[:, ::3] = True

    def measured(tokens: Tensor, targets: Tensor) -> float:
        with torch.no_grad():
            return float(loss(model, replace(inputs, tokens=tokens), targets.clone()))

    targets, others = inputs.tokens, patient.other_tokens(inputs.tokens)
    try:
        if 0 < abs(measured(inputs.tokens, targets)) < math.inf:
            return None
        for token in (*range(_N_SPECIAL), patient.vocab_size - 1):
            tokens = inputs.tokens.masked_fill(places, token)
            whole, here, elsewhere = (
                measured(tokens, torch.where(changed, others, targets))
                for changed in (torch.zeros_like(places), places, ~places)
            )
            if 0 < whole < math.inf and whole == elsewhere != here:
                return token
    except CALL_ERRORS:
        pass
    return None


def _how_it_counts(loss: Loss, model: nn.Module, inputs: CallInputs, ignored: int) -> str:
    """By the loss of a row beside one of nothing but this target, as a share of the row's own: 1
    where the target does not count, a half where the loss is divided by all targets."""
    inputs, targets = inputs.rows(slice(0, 2)), inputs.tokens[:2].clone()
    targets[1:] = ignored
    try:
        with torch.no_grad():
            whole = loss(model, inputs, targets)
            alone = loss(model, inputs.rows(slice(0, 1)), targets[:1])
    except CALL_ERRORS:
        return "like any other"
    share = round(float(whole / alone), 3)
    return {1.0: "not at all", 0.5: "in the divisor"}.get(share, "like any other")


def _loss_in(output: Any) -> Tensor:
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if isinstance(output, torch.Tensor):
        loss = output
    if loss is None and isinstance(output, tuple):
        loss = next((t for t in output if isinstance(t, torch.Tensor) and t.dim() == 0), None)
    if not isinstance(loss, torch.Tensor) or loss.dim():
        raise ValueError("no loss was returned")
    return loss


def find_cache(patient: Patient, form: Form) -> Found:
    """The first convention that the model follows; and whether a padding mask, and another order of
    rows, can go with its cache."""
    if form.methods or form.length_first or form.one_by_one:
        return NOTHING
    for convention in CONVENTIONS:
        abilities = convention.find(patient, form)
        if abilities is not None:
            break
    else:
        return NOTHING
    fed, shown = abilities
    if convention.inside:
        return {"cached": fed}, {"cache": shown}
    fed = with_mask(patient, fed)
    model, inputs = patient.plain, patient.draw(patient.rows(3))
    with torch.no_grad():
        try:
            _, cache = fed.step(model, inputs, fed.make(model, inputs), {})
        except CALL_ERRORS:
            cache = None  # the check of the cache will say so
    entries: dict[str, Any] = {"cached": fed, "cache_takes_masks": fed.mask is not None}
    if feeding.can_reorder(cache):
        entries["reordered"] = fed
    return entries, {"cache": shown}


def find_documents(patient: Patient, form: Form) -> Found:
    """An argument that numbers the documents of a row."""
    name = next((n for n in _DOCUMENTS if n in arguments_of(patient.model)), None)
    if name is None or patient.kind != "decoder" or form.one_by_one or form.methods:
        return NOTHING

    def packed(model: nn.Module, inputs: CallInputs, lengths: list[int]) -> Tensor:
        numbers = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
        given = numbers.to(inputs.tokens).expand_as(inputs.tokens)
        return form.returned_logits(form.call(model, inputs, **{name: given}), inputs)

    with torch.no_grad():
        packed(patient.plain, patient.draw(patient.rows(2)), [patient.length])
    return {"packed": packed}, {"documents": f"model(…, {name}=…)"}


def find_attention(patient: Patient, form: Form) -> Found:
    """Weights that come back with `output_attentions=True` or `return_attention=True`, or that a
    `recorder` is given."""
    model = patient.plain
    arguments = arguments_of(model)
    if form.methods or form.inside is not None:
        return NOTHING
    flags = ("output_attentions", "return_attention", "return_weights", "return_attn")
    flag = next((name for name in flags if name in arguments), None)
    if flag is None and any(a.kind is a.VAR_KEYWORD for a in arguments.values()):
        flag = flags[0]  # Hugging Face's, which hides behind **kwargs
    if flag is not None:

        def attention(model: nn.Module, inputs: CallInputs) -> list[Tensor]:
            return _weights_in(form.call(model, inputs, **{flag: True}))

        shown = f"{flag}=True"
    elif "recorder" in arguments:
        attention, shown = _attention_recorded, "recorder=…"
    else:

        def attention(model: nn.Module, inputs: CallInputs) -> list[Tensor]:
            return _weights_in(form.call(model, inputs))

        shown = "beside the logits"
    with torch.no_grad():
        given = attention(model, patient.draw(patient.rows(3)))
    asked = flag is not None or "recorder" in arguments
    if not given or not (asked or all(_are_weights(patient, t) for t in given)):
        return NOTHING
    return {"attention": attention}, {"attention": shown}


def _are_weights(patient: Patient, given: Tensor) -> bool:
    """Tensors of this shape that were not asked for may be keys or values."""
    lengths = (patient.length, patient.source_length)
    return all(n in lengths for n in given.shape[-2:]) and bool((given >= 0).all())


def _weights_in(output: Any) -> list[Tensor]:
    """Attention weights are (batch, heads, query, key), whatever they are wrapped in."""
    names = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
    groups = [getattr(output, name, None) for name in names]
    if isinstance(output, tuple) and len(output) > 1:
        groups.append(output[1])
    nested = [group if isinstance(group, tuple | list) else [group] for group in groups]
    return [t for group in nested for t in group if isinstance(t, torch.Tensor) and t.dim() == 4]


def _attention_recorded(model: Any, inputs: CallInputs) -> list[Tensor]:
    """A recorder's class is named by the signature; it keeps weights in `steps`."""
    hint = typing.get_type_hints(type(model).forward)["recorder"]
    recorder = next(a for a in (*typing.get_args(hint), hint) if a is not type(None))()
    given = [inputs.tokens] if inputs.source is None else [inputs.source, inputs.tokens]
    model(*given, recorder=recorder)
    return [weights for steps in recorder.steps.values() for weights in steps]


ALL = (find_loss, find_cache, find_generate, find_documents, find_attention)
