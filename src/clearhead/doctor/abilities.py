"""Finds what else a model can do: compute a loss, use a cache, generate, return attention weights.

Each function returns the entries of `Calls` that it found and how the report shows them, or raises
one of `CALL_ERRORS` if a trial failed. If the model does not have the ability, the result is empty.
"""

import typing
from typing import Any

import torch
from torch import Tensor, nn

from . import caching, feeding, losses
from .calls import CallInputs
from .form import CALL_ERRORS, Form, arguments_of
from .generating import NOTHING, Found, find_generate
from .patient import Patient

_DOCUMENTS = ("doc_ids", "document_ids", "documents", "sequence_ids", "seq_ids")


def find_loss(patient: Patient, form: Form) -> Found:
    """Return the first loss convention that the model follows."""
    tried = (convention.find(patient, form) for convention in losses.CONVENTIONS)
    return next((abilities for abilities in tried if abilities is not None), NOTHING)


def find_cache(patient: Patient, form: Form) -> Found:
    """Return the first cache convention that the model follows, and whether its cache can be used
    with a padding mask and with rows in another order."""
    if form.methods or form.length_first or form.one_by_one:
        return NOTHING
    for convention in caching.CONVENTIONS:
        abilities = convention.find(patient, form)
        if abilities is not None:
            break
    else:
        return NOTHING
    fed, shown = abilities
    if convention.inside:
        return {"cached": fed}, {"cache": shown}
    fed = caching.with_mask(patient, fed)
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
    """Return an argument that numbers the documents of a row."""
    name = next((n for n in _DOCUMENTS if n in arguments_of(patient.model)), None)
    if name is None or patient.kind != "decoder" or form.one_by_one or form.methods:
        return NOTHING

    def packed(model: nn.Module, inputs: CallInputs, lengths: list[int]) -> Tensor:
        numbers = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
        by_row = numbers.to(inputs.tokens).expand_as(inputs.tokens)
        return form.returned_logits(form.call(model, inputs, **{name: by_row}), inputs)

    with torch.no_grad():
        packed(patient.plain, patient.draw(patient.rows(2)), [patient.length])
    return {"packed": packed}, {"documents": f"model(…, {name}=…)"}


def find_attention(patient: Patient, form: Form) -> Found:
    """Return the attention weights that the model returns with `output_attentions=True` or
    `return_attention=True`, or that it passes to a `recorder`."""
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
        weights = attention(model, patient.draw(patient.rows(3)))
    asked = flag is not None or "recorder" in arguments
    if not weights or not (asked or all(_are_weights(patient, t) for t in weights)):
        return NOTHING
    return {"attention": attention}, {"attention": shown}


def _are_weights(patient: Patient, tensor: Tensor) -> bool:
    """Tell whether a tensor holds attention weights. Tensors of the same shape that were not asked
    for may be keys or values."""
    lengths = (patient.length, patient.source_length)
    return all(n in lengths for n in tensor.shape[-2:]) and bool((tensor >= 0).all())


def _weights_in(output: Any) -> list[Tensor]:
    """Return the tensors in an output that have the shape of attention weights, (batch, heads,
    query, key), however they are nested."""
    names = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
    groups = [getattr(output, name, None) for name in names]
    if isinstance(output, tuple) and len(output) > 1:
        groups.append(output[1])
    nested = [group if isinstance(group, tuple | list) else [group] for group in groups]
    return [t for group in nested for t in group if isinstance(t, torch.Tensor) and t.dim() == 4]


def _attention_recorded(model: Any, inputs: CallInputs) -> list[Tensor]:
    """Return the weights that a recorder collects. The signature names the recorder's class; the
    recorder keeps weights in `steps`."""
    hint = typing.get_type_hints(type(model).forward)["recorder"]
    recorder = next(a for a in (*typing.get_args(hint), hint) if a is not type(None))()
    tokens = [inputs.tokens] if inputs.source is None else [inputs.source, inputs.tokens]
    model(*tokens, recorder=recorder)
    return [weights for steps in recorder.steps.values() for weights in steps]


ALL = (find_loss, find_cache, find_generate, find_documents, find_attention)
