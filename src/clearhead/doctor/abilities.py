"""What else a model can do: a loss, a cache, generation, attention weights that it returns.

Each function returns the entries of `Calls` that it found and how they are shown, or raises one
of `CALL_ERRORS` where a trial failed; an ability that is not there is an empty answer.
"""

import typing
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.doctor import feeding
from clearhead.doctor.form import CALL_ERRORS, Form, arguments_of
from clearhead.doctor.patient import CallInputs, Generated, Patient, change_size

Found = tuple[dict[str, Any], dict[str, str]]
NOTHING: Found = ({}, {})

_RESETS = ("reset_kv_cache", "reset_cache", "clear_kv_cache", "clear_cache")
_CACHES = ("past_key_values", "cache", "kv_cache", "past", "past_kv")
_SETTINGS = {
    "new": ("max_new_tokens", "n_new_tokens", "n_new", "max_tokens", "max_len", "max_length"),
    "temperature": ("temperature",),
    "top_k": ("top_k",),
    "eos": (
        "eos_token_id",
        "eos_id",
        "eos",
        "eos_token",
        "end_id",
        "stop_id",
        "stop_token",
        "eos_idx",
    ),
    "beams": ("num_beams", "n_beams", "beam_size", "beam_width", "beams"),
}


def find_loss(patient: Patient, form: Form) -> Found:
    """`model(…, targets=…)` or `labels=…` that returns a loss beside the logits."""
    model = patient.plain
    name = next((n for n in ("labels", "lm_labels", "targets") if n in arguments_of(model)), None)
    if name is None or form.methods or form.shifts_itself or form.inside is not None:
        return NOTHING

    def loss(model: nn.Module, inputs: CallInputs, targets: Tensor) -> Tensor:
        output = form.call(model, inputs, **{name: targets})
        return _loss_in(output)

    # Hugging Face's word for "the inputs again, and the model shifts them".
    shift = 1 if name != "targets" and patient.kind == "decoder" else 0
    inputs = patient.draw(3)
    for ignored in (-100, -1, *([] if patient.pad_id is None else [patient.pad_id]), 0):
        targets = inputs.tokens.clone()
        targets[:, 0] = ignored
        try:
            with torch.no_grad():
                loss(model, inputs, targets)
        except (IndexError, RuntimeError):
            continue
        found = {"loss": loss, "loss_shift": shift, "ignored": ignored}
        return found, {"loss": f"loss = model(…, {name}=…), {ignored} is ignored"}
    return NOTHING


def _loss_in(output: Any) -> Tensor:
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if loss is None and isinstance(output, tuple):
        loss = next((t for t in output if isinstance(t, torch.Tensor) and t.dim() == 0), None)
    if not isinstance(loss, torch.Tensor) or loss.dim():
        raise ValueError("no loss came back")
    return loss


def find_cache(patient: Patient, form: Form) -> Found:
    """Three customs: a cache made by `new_cache` and grown in place; one that comes back as
    `.past_key_values`; one that comes back as the second of a tuple."""
    model, inputs = patient.plain, patient.draw(3)
    forget = next((n for n in _RESETS if callable(getattr(model, n, None))), None)
    if form.methods or form.length_first or form.one_by_one:
        return NOTHING
    if forget is not None and "use_cache" in arguments_of(model):
        step = feeding.kept_by_the_model(form, "use_cache")
        fed = feeding.Feeding(form, feeding.reset(forget), step)
        return {"cached": fed}, {"cache": f"model.{forget}(); model(…, use_cache=True)"}
    if form.start is not None:
        fed = feeding.Feeding(form, feeding.none_yet, feeding.counted_by_the_caller(form))
        return {"cached": fed}, {"cache": f"model(…, {form.start}=…)"}
    if callable(getattr(model, "new_cache", None)):
        made, step = feeding.new_cache, feeding.grown_in_place
        if patient.has_source:
            made, step = feeding.new_cache_of_source, feeding.decoded_in_place
        fed = feeding.Feeding(form, made, step)
        with torch.no_grad():
            made(model, inputs)  # one that takes other arguments is not ours to judge
        shown = "cache = model.new_cache(…)"
    else:
        name = next((n for n in _CACHES if n in arguments_of(model)), None)
        if name is None:
            return NOTHING
        flags = {"use_cache": True} if "use_cache" in arguments_of(model) else {}
        step = feeding.returned_by_the_model(form, name, flags)
        fed = feeding.Feeding(form, feeding.none_yet, step)
        with torch.no_grad():
            step(model, inputs, None, {})  # what fails from here on is the model's own doing
        shown = f"model(…, {name}=…)"
    fed = _with_mask(patient, fed)
    with torch.no_grad():
        try:
            _, cache = fed.step(model, inputs, fed.make(model, inputs), {})
        except CALL_ERRORS:
            cache = None  # the check of the cache will say so
    found = {"cached": fed, "cache_takes_masks": fed.mask is not None}
    if feeding.can_reorder(cache):
        found["reordered"] = fed
    return found, {"cache": shown}


def _with_mask(patient: Patient, fed: feeding.Feeding) -> feeding.Feeding:
    """How a padding mask goes with the cache is found by one under which every token is real:
    the right way changes nothing."""
    if "real" not in fed.form.masks or patient.length < 3:
        return fed
    model, inputs = patient.plain, patient.draw(3)
    masked = replace(inputs, real=torch.ones_like(inputs.tokens, dtype=torch.bool))
    pieces = [patient.length - 2, 2]
    for mask in ("whole", "new"):
        tried = replace(fed, mask=mask)
        try:
            with torch.no_grad():
                plain, logits = fed(model, inputs, pieces), tried(model, masked, pieces)
        except CALL_ERRORS:
            continue
        if change_size(plain, logits) < 1e-4:
            return tried
    return fed


def find_generate(patient: Patient, _form: Form) -> Found:
    """`model.generate(tokens, …)`, whose settings are known by their names."""
    arguments = arguments_of(patient.model, "generate")
    if not arguments or patient.kind == "encoder":
        return NOTHING
    if "generation_config" in arguments:
        settings = frozenset({"temperature", "top_k", "eos", "beams"})
        return (
            {"generate": _generate_hugging_face, "settings": settings},
            {"generation": "model.generate(…), Hugging Face's"},
        )
    names = {
        setting: next((n for n in known if n in arguments), None)
        for setting, known in _SETTINGS.items()
    }
    new = names.pop("new")
    if new is None:
        return NOTHING

    def generate(model: Any, inputs: CallInputs, n_new: int, /, **settings: Any) -> Generated:
        given = {str(names[setting]): value for setting, value in settings.items()}
        prompt = inputs.tokens if inputs.source is None else inputs.source
        output = model.generate(prompt, **{new: n_new}, **given)
        tokens, scores = output if isinstance(output, tuple) else (output, None)
        # An encoder-decoder's first token is the one that starts it, and was not generated.
        start = 1 if inputs.source is not None else prompt.shape[1]
        if inputs.source is None and not torch.equal(tokens[:, :start], prompt):
            return Generated(prompt, tokens, scores)  # the new ones only
        return Generated(tokens[:, :start], tokens[:, start:], scores)

    settings = frozenset(setting for setting, name in names.items() if name is not None)
    known = ", ".join([new, *(name for name in names.values() if name is not None)])
    found = {"generate": generate, "settings": settings}
    return found, {"generation": f"model.generate(…, {known})"}


def _generate_hugging_face(
    model: Any, inputs: CallInputs, n_new: int, /, **settings: Any
) -> Generated:
    # Every setting is given, so that no default of the checkpoint plays a part.
    beams = settings.get("beams", 1)
    given = {
        "max_new_tokens": n_new,
        "min_new_tokens": 0,
        "do_sample": "temperature" in settings or "top_k" in settings,
        "num_beams": beams,
        "length_penalty": 0.0,
        "eos_token_id": settings.get("eos"),
        "pad_token_id": model.config.pad_token_id or 0,
        "return_dict_in_generate": True,
        "output_scores": beams > 1,
    }
    for name in ("temperature", "top_k"):
        if name in settings:
            given[name] = settings[name]
    prompt = inputs.tokens if inputs.source is None else inputs.source
    output = model.generate(prompt, attention_mask=torch.ones_like(prompt), **given)
    start = prompt.shape[1] if inputs.source is None else 1
    tokens = output.sequences
    scores = getattr(output, "sequences_scores", None)
    return Generated(tokens[:, :start], tokens[:, start:], scores)


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
        return NOTHING
    with torch.no_grad():
        if not attention(model, patient.draw(3)):
            return NOTHING
    return {"attention": attention}, {"attention": shown}


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


ALL = (find_loss, find_cache, find_generate, find_attention)
