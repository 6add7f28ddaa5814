"""What else a model can do: a loss, a cache, generation, attention weights that it returns.

Each function returns the entries of `Calls` that it found and how they are shown, or raises one
of `CALL_ERRORS` where a trial failed; an ability that is not there is an empty answer.
"""

import inspect
import typing
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from . import feeding
from .form import CALL_ERRORS, Form, arguments_of, logits_in
from .forms import STARTS
from .generating import NOTHING, Found, find_generate
from .patient import CallInputs, Patient, change_size

_LABELS = ("labels", "lm_labels", "targets", "gold")
_DOCUMENTS = ("doc_ids", "document_ids", "documents", "sequence_ids", "seq_ids")
_RESETS = ("reset_kv_cache", "reset_cache", "clear_kv_cache", "clear_cache")
_CACHES = ("past_key_values", "cache", "kv_cache", "past", "past_kv")


def find_loss(patient: Patient, form: Form) -> Found:
    """`model(…, targets=…)` or `labels=…` that returns a loss beside the logits."""
    model = patient.plain
    name = next((n for n in _LABELS if n in arguments_of(model)), None)
    if form.inside is not None and patient.kind == "decoder" and form.targets is None:
        return {"own_loss": form.call}, {"loss": "loss = model(…)"}
    if name is not None and form.shifts_itself and form.tokens is None:

        def labelled(model: nn.Module, inputs: CallInputs, targets: Tensor) -> Any:
            return form.call(model, replace(inputs, tokens=targets))

        return {"labelled": labelled}, {}
    if name is None or form.methods or form.shifts_itself or form.inside is not None:
        return NOTHING
    if form.pooled or form.vocab_size != patient.vocab_size:
        return NOTHING  # targets are not tokens

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
    # The one that does not count; or counts as a place and costs nothing; or the first.
    counts = {ignored: _share(loss, model, inputs, ignored) for ignored in taken}
    ignored = min(taken, key=lambda one: min(abs(counts[one] - 1), 0.01 + abs(counts[one] - 0.5)))
    # Token 0 is the last that was tried: where it counts, none is known that does not.
    ignores = counts[ignored] in (1.0, 0.5) or ignored in (-100, -1, patient.pad_id)
    found = {"loss": loss, "labelled": loss, "loss_shift": shift}
    found |= {"ignored": ignored, "ignores": ignores}
    told = f", {ignored} is ignored" if ignores else ""
    return found, {"loss": f"loss = model(…, {name}=…){told}"}


def _share(loss: Any, model: nn.Module, inputs: CallInputs, ignored: int) -> float:
    """The loss of a row beside one of nothing but this target, as a share of the row's own: 1 where
    the target does not count, a half where it is divided by all."""
    inputs, targets = inputs.rows(slice(0, 2)), inputs.tokens[:2].clone()
    targets[1:] = ignored
    try:
        with torch.no_grad():
            whole = loss(model, inputs, targets)
            alone = loss(model, inputs.rows(slice(0, 1)), targets[:1])
    except CALL_ERRORS:
        return 9.0
    share = round(float(whole / alone), 3)
    return share if share in (1.0, 0.5) else 9.0


def _loss_in(output: Any) -> Tensor:
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if isinstance(output, torch.Tensor):
        loss = output
    if loss is None and isinstance(output, tuple):
        loss = next((t for t in output if isinstance(t, torch.Tensor) and t.dim() == 0), None)
    if not isinstance(loss, torch.Tensor) or loss.dim():
        raise ValueError("no loss came back")
    return loss


def find_cache(patient: Patient, form: Form) -> Found:
    """Four customs: a cache inside the model, beside an argument that says where tokens begin; one
    made by `new_cache` and grown in place; one that comes back as `.past_key_values`, or as the
    second of a tuple, with or without such an argument."""
    model, inputs = patient.plain, patient.draw(patient.rows(3))
    forget = next((n for n in _RESETS if callable(getattr(model, n, None))), None)
    if form.methods or form.length_first or form.one_by_one:
        return NOTHING
    if forget is not None and "use_cache" in arguments_of(model):
        begins = _start_of(model)
        if begins is None:
            step = feeding.kept_by_the_model(form, {"use_cache": True})
        else:
            step = feeding.counted_by_the_caller(form, begins, {"use_cache": True})
        fed = feeding.Feeding(form, feeding.reset(forget), step)
        shown = "use_cache=True" + ("" if begins is None else f", {begins}=…")
        return {"cached": fed}, {"cache": f"model.{forget}(); model(…, {shown})"}
    given_back = any(n in arguments_of(model) for n in _CACHES)
    if form.places is not None and not given_back:
        if not _keeps_what_came(patient, form, lambda n, t: {form.places: form.places_from(n, t)}):
            return NOTHING
        fed = feeding.Feeding(form, feeding.none_yet, feeding.placed_by_the_caller(form))
        return {"cached": fed}, {"cache": f"model(…, {form.places}=…)"}
    if given_back:
        begins = form.start or _start_of(model)
    else:
        begins = form.start or _optional_start(patient, form)
    if begins is not None and not given_back:
        step = feeding.counted_by_the_caller(form, begins)
        fed = feeding.Feeding(form, feeding.none_yet, step)
        return {"cached": fed}, {"cache": f"model(…, {begins}=…)"}
    if callable(getattr(model, "new_cache", None)):
        made, step = feeding.new_cache, feeding.grown_in_place
        if patient.has_source:
            made, step = feeding.new_cache_of_source, feeding.decoded_in_place
        fed = feeding.Feeding(form, made, step)
        with torch.no_grad():
            made(model, inputs)  # one that takes other arguments is not ours to judge
        if begins is not None and not (patient.has_source or _counts_itself(patient, fed)):
            counted = feeding.grown_and_counted(begins)
            fed = feeding.Feeding(form, feeding.new_cache_at_zero, counted)
        shown = "cache = model.new_cache(…)"
    else:
        name = next((n for n in _CACHES if n in arguments_of(model)), None)
        if name is None:
            return NOTHING
        flags = {"use_cache": True} if "use_cache" in arguments_of(model) else {}
        step = feeding.returned_by_the_model(form, name, flags)
        fed = feeding.Feeding(form, feeding.none_yet, step)
        if begins is not None and (form.start or not _counts_itself(patient, fed)):
            step = feeding.counted_and_returned(form, name, begins, flags)
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


def _start_of(model: nn.Module) -> str | None:
    """An argument that says where tokens begin; one of `**kwargs` stands as a text in the code."""
    arguments = arguments_of(model)
    known: tuple[object, ...] = tuple(arguments)
    if any(each.kind is each.VAR_KEYWORD for each in arguments.values()):
        code = getattr(inspect.unwrap(type(model).forward), "__code__", None)
        known += getattr(code, "co_consts", ())
    return next((name for name in STARTS if name in known), None)


def _optional_start(patient: Patient, form: Form) -> str | None:
    """An argument that says where new tokens begin, in a model that keeps what came before: a
    token then knows of the ones in an earlier call."""
    name = _start_of(patient.model)
    if name is None or not _keeps_what_came(patient, form, lambda start, _: {name: start}):
        return None
    return name


def _keeps_what_came(
    patient: Patient, form: Form, told: Callable[[int, Tensor], dict[Any, Any]]
) -> bool:
    """Whether a last token whose place is given knows of those in an earlier call."""
    n_rows = patient.max_rows or 2 if form.exact_rows else patient.rows(2)
    model, inputs = patient.copy(), patient.draw(n_rows)
    others = replace(inputs, tokens=patient.other_tokens(inputs.tokens))
    last = replace(inputs, tokens=inputs.tokens[:, -1:])
    begin = patient.length - 1
    with torch.no_grad():
        found: list[Tensor] = []
        for before in (inputs, others):
            first = replace(before, tokens=before.tokens[:, :-1])
            form.call(model, first, **told(0, first.tokens))
            output = form.call(model, last, **told(begin, last.tokens))
            logits = logits_in(output, last.tokens.shape, form.vocab_size)
            if logits is None:
                return False
            found.append(logits)
    return change_size(*found) > 1e-6


def _counts_itself(patient: Patient, fed: feeding.Feeding) -> bool:
    """Whether the cache alone says where new tokens begin."""
    model, inputs = patient.plain, patient.draw(patient.rows(2))
    try:
        with torch.no_grad():
            pieces = fed(model, inputs, [patient.length - 1, 1])
            return change_size(fed.form.logits(model, inputs), pieces) < 1e-4
    except CALL_ERRORS:
        return False


def _with_mask(patient: Patient, fed: feeding.Feeding) -> feeding.Feeding:
    """How a padding mask goes with the cache is found by one under which every token is real:
    the right way changes nothing."""
    if "real" not in fed.form.masks or patient.length < 3:
        return fed
    model, inputs = patient.plain, patient.draw(patient.rows(3))
    masked = replace(inputs, real=torch.ones_like(inputs.tokens, dtype=torch.bool))
    needed = fed.form.masks["real"].always
    # Some models take one token at a time.
    for last, mask in product(([2], [1, 1]), ("whole", "new")):
        pieces = [patient.length - 2, *last]
        tried = replace(fed, mask=mask)
        try:
            with torch.no_grad():
                # What cannot go without a mask is compared with the pass of all tokens.
                plain = fed.form.logits(model, inputs) if needed else fed(model, inputs, pieces)
                logits = tried(model, masked, pieces)
        except CALL_ERRORS:
            continue
        if change_size(plain, logits) < 1e-4:
            return tried
    return fed


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
