"""The ways in which people's Transformers keep a cache. There is one class for each way, and they
are tried in order."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from . import feeding
from .calling import STARTS
from .feeding import Feeding
from .form import CALL_ERRORS, Form, arguments_of
from .outputs import logits_in
from .patient import Patient, change_size

_RESETS = ("reset_kv_cache", "reset_cache", "clear_kv_cache", "clear_cache")
_CACHES = ("past_key_values", "cache", "kv_cache", "past", "past_kv")


class CacheConvention(ABC):
    """One way in which a model keeps its cache."""

    inside: ClassVar[bool] = True
    """True if the cache is inside the model. If not, it is an argument, and a padding mask or
    another order of rows may be used with it."""

    @abstractmethod
    def find(self, patient: Patient, form: Form) -> tuple[Feeding, str] | None:
        """Return how tokens are fed in pieces, and how the report shows that; None if the model
        does not follow this convention. A call that fails raises one of `CALL_ERRORS`."""


class ClearedCache(CacheConvention):
    """The cache is inside the model: `model.reset_cache()`, then `model(tokens,
    use_cache=True)`."""

    def find(self, patient: Patient, form: Form) -> tuple[Feeding, str] | None:
        """Find the cache by the name of the method, and the flag."""
        model = patient.plain
        forget = next((n for n in _RESETS if callable(getattr(model, n, None))), None)
        if forget is None or "use_cache" not in arguments_of(model):
            return None
        begins = _start_of(model)
        if begins is None:
            step = feeding.kept_by_the_model(form, {"use_cache": True})
        else:
            step = feeding.counted_by_the_caller(form, begins, {"use_cache": True})
        shown = "use_cache=True" + ("" if begins is None else f", {begins}=…")
        fed = Feeding(form, feeding.reset(forget), step)
        return fed, f"model.{forget}(); model(…, {shown})"


class PlacedCache(CacheConvention):
    """The cache is inside the model and is written at the places that the caller names:
    `model(tokens, input_pos)`."""

    def find(self, patient: Patient, form: Form) -> tuple[Feeding, str] | None:
        """Find the cache by whether the output at a last token, given its position, depends on
        tokens of an earlier call."""
        if form.places is None or _is_given_back(patient):
            return None
        if not _keeps_what_came(patient, form, lambda n, t: {form.places: form.places_from(n, t)}):
            return None
        fed = Feeding(form, feeding.none_yet, feeding.placed_by_the_caller(form))
        return fed, f"model(…, {form.places}=…)"


class CountedCache(CacheConvention):
    """The cache is inside the model and is written from the position that the caller names:
    `model(tokens, start_pos)`."""

    def find(self, patient: Patient, form: Form) -> tuple[Feeding, str] | None:
        """Find the cache by an argument that is needed, or by an optional one, if the output then
        depends on tokens of an earlier call."""
        if form.places is not None or _is_given_back(patient):
            return None
        name = form.start or _start_of(patient.model)
        if name is None:
            return None
        if form.start is None and not _keeps_what_came(patient, form, lambda n, _: {name: n}):
            return None
        step = feeding.counted_by_the_caller(form, name)
        return Feeding(form, feeding.none_yet, step), f"model(…, {name}=…)"


class MadeCache(CacheConvention):
    """`model.new_cache(…)` makes the cache, which is an argument and grows in place."""

    inside: ClassVar[bool] = False

    def find(self, patient: Patient, form: Form) -> tuple[Feeding, str] | None:
        """Find the cache by the name of the method."""
        model, given_back = patient.plain, _is_given_back(patient)
        if form.places is not None and not given_back:
            return None
        if not callable(getattr(model, "new_cache", None)):
            return None
        made, step = feeding.new_cache, feeding.grown_in_place
        if patient.has_source:
            made, step = feeding.new_cache_of_source, feeding.decoded_in_place
        fed = Feeding(form, made, step)
        with torch.no_grad():
            # One that takes other arguments is not ours to judge.
            made(model, patient.draw(patient.rows(3)))
        begins = form.start or _start_of(model) if given_back else None
        if begins is not None and not (patient.has_source or _counts_itself(patient, fed)):
            counted = feeding.grown_and_counted(begins)
            fed = Feeding(form, feeding.new_cache_at_zero, counted)
        return fed, "cache = model.new_cache(…)"


class ReturnedCache(CacheConvention):
    """The cache is an argument that the model returns, as `.past_key_values` or as the second item
    of a tuple."""

    inside: ClassVar[bool] = False

    def find(self, patient: Patient, form: Form) -> tuple[Feeding, str] | None:
        """Find the cache by the name of the argument."""
        model = patient.plain
        name = next((n for n in _CACHES if n in arguments_of(model)), None)
        if name is None:
            return None
        begins = form.start or _start_of(model)
        flags = {"use_cache": True} if "use_cache" in arguments_of(model) else {}
        step = feeding.returned_by_the_model(form, name, flags)
        fed = Feeding(form, feeding.none_yet, step)
        if begins is not None and (form.start or not _counts_itself(patient, fed)):
            step = feeding.counted_and_returned(form, name, begins, flags)
            fed = Feeding(form, feeding.none_yet, step)
        with torch.no_grad():
            # What fails from here on is the model's own doing.
            step(model, patient.draw(patient.rows(3)), None, {})
        return fed, f"model(…, {name}=…)"


CONVENTIONS: tuple[CacheConvention, ...] = (
    ClearedCache(),
    PlacedCache(),
    CountedCache(),
    MadeCache(),
    ReturnedCache(),
)


def with_mask(patient: Patient, fed: Feeding) -> Feeding:
    """Find how a padding mask is used with the cache, with a mask under which every token is real:
    in the right form, it changes nothing."""
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


def _is_given_back(patient: Patient) -> bool:
    """Tell whether the cache is an argument."""
    return any(name in arguments_of(patient.plain) for name in _CACHES)


def _start_of(model: nn.Module) -> str | None:
    """Return the argument that gives the position at which tokens begin. If it is one of
    `**kwargs`, its name is a text in the code."""
    arguments = arguments_of(model)
    known: tuple[object, ...] = tuple(arguments)
    if any(each.kind is each.VAR_KEYWORD for each in arguments.values()):
        code = getattr(inspect.unwrap(type(model).forward), "__code__", None)
        known += getattr(code, "co_consts", ())
    return next((name for name in STARTS if name in known), None)


def _keeps_what_came(
    patient: Patient, form: Form, place: Callable[[int, Tensor], dict[Any, Any]]
) -> bool:
    """Tell whether the output at a last token, whose position is given, depends on tokens of an
    earlier call."""
    n_rows = patient.max_rows or 2 if form.exact_rows else patient.rows(2)
    model, inputs = patient.copy(), patient.draw(n_rows)
    others = replace(inputs, tokens=patient.other_tokens(inputs.tokens))
    last = replace(inputs, tokens=inputs.tokens[:, -1:])
    begin = patient.length - 1
    with torch.no_grad():
        tensors: list[Tensor] = []
        for before in (inputs, others):
            first = replace(before, tokens=before.tokens[:, :-1])
            form.call(model, first, **place(0, first.tokens))
            output = form.call(model, last, **place(begin, last.tokens))
            logits = logits_in(output, last.tokens.shape, form.vocab_size)
            if logits is None:
                return False
            tensors.append(logits)
    return change_size(*tensors) > 1e-6


def _counts_itself(patient: Patient, fed: Feeding) -> bool:
    """Tell whether the cache alone determines where new tokens begin."""
    model, inputs = patient.plain, patient.draw(patient.rows(2))
    try:
        with torch.no_grad():
            pieces = fed(model, inputs, [patient.length - 1, 1])
            return change_size(fed.form.logits(model, inputs), pieces) < 1e-4
    except CALL_ERRORS:
        return False
