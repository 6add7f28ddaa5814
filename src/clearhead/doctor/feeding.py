"""Feeds tokens in pieces through a cache, however a model handles its caches."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .calls import CallInputs
from .form import Form, arguments_of

Step = Callable[[nn.Module, CallInputs, Any, dict[str, Any]], tuple[Tensor, Any]]
"""Takes new tokens, the cache so far and further arguments. Returns the logits of the new tokens,
and the extended cache."""


@dataclass(frozen=True)
class Feeding:
    """How a model runs with its cache, one step at a time."""

    form: Form
    make: Callable[[nn.Module, CallInputs], Any]
    """Makes an empty cache; returns None if the first call makes one."""
    step: Step
    mask: Literal["whole", "new"] | None = None
    """"whole" if a padding mask covers all tokens so far, "new" if it covers only the new ones;
    None if the cache takes no mask."""

    def __call__(
        self, model: nn.Module, inputs: CallInputs, pieces: list[int], rows: list[int] | None = None
    ) -> Tensor:
        """Return the logits of all pieces. With `rows`, the last piece continues these rows."""
        cache, parts, end = self.make(model, inputs), [], 0
        for index, n_tokens in enumerate(pieces):
            if rows is not None and index == len(pieces) - 1:
                inputs, cache = inputs.rows(rows), reorder(cache, rows, inputs.tokens.device)
            start, end = end, end + n_tokens
            piece = replace(inputs, tokens=inputs.tokens[:, start:end], real=None)
            more = self._mask(model, inputs, start, end)
            logits, cache = self.step(model, piece, cache, more)
            parts.append(logits)
        return torch.cat(parts, dim=1)

    def _mask(self, model: nn.Module, inputs: CallInputs, start: int, end: int) -> dict[str, Any]:
        so_far = torch.ones_like(inputs.tokens[:, :end], dtype=torch.bool)
        given: dict[str, Any] = {
            mask.argument: mask.given_to(model, so_far, end - start)
            for mask in self.form.masks.values()
            if mask.causal
        }
        form, real = self.form.masks.get("real"), inputs.real
        if real is None and form is not None and form.always:
            real = torch.ones_like(inputs.tokens, dtype=torch.bool)
        if form is None or real is None or self.mask is None:
            return given
        first = 0 if self.mask == "whole" else start
        given[form.argument] = form.given_to(model, real[:, first:end], end - start)
        if "position_ids" in arguments_of(model):
            places = (real.long().cumsum(dim=1) - 1).clamp(min=0)
            given["position_ids"] = places[:, start:end]
        return given


def can_reorder(cache: Any) -> bool:
    """Tell whether the cache has a method that reorders its rows."""
    return any(callable(getattr(cache, name, None)) for name in ("reorder", "reorder_cache"))


def reorder(cache: Any, rows: list[int], device: torch.device) -> Any:
    """Let row i continue from the tokens of row rows[i]: in place, or as a new cache."""
    method = getattr(cache, "reorder", None) or cache.reorder_cache
    returned = method(torch.tensor(rows, device=device))
    return cache if returned is None else returned


def returned_by_the_model(form: Form, name: str, flags: dict[str, Any]) -> Step:
    """Return the step of a model that takes the cache as an argument and returns it beside the
    logits."""

    def step(
        model: nn.Module, inputs: CallInputs, cache: Any, more: dict[str, Any]
    ) -> tuple[Tensor, Any]:
        output = form.call(model, inputs, **{name: cache}, **flags, **more)
        return form.returned_logits(output, inputs), _cache_in(output)

    return step


def counted_and_returned(form: Form, name: str, start: str, flags: dict[str, Any]) -> Step:
    """Return the step of a model that takes and returns the cache, beside the number of tokens so
    far."""

    def step(
        model: nn.Module, inputs: CallInputs, cache: Any, more: dict[str, Any]
    ) -> tuple[Tensor, Any]:
        before, so_far = cache or (None, 0)
        fed = returned_by_the_model(form, name, {**flags, start: so_far})
        logits, grown = fed(model, inputs, before, more)
        return logits, (grown, so_far + inputs.tokens.shape[1])

    return step


def _cache_in(output: Any) -> Any:
    cache = getattr(output, "past_key_values", None)
    if cache is None and isinstance(output, tuple) and len(output) == 2:
        cache = output[1]
    if cache is None or (isinstance(cache, Tensor) and cache.dim() < 3):  # a loss, or lengths
        raise ValueError("no cache was returned")
    return cache


def none_yet(_model: nn.Module, _inputs: CallInputs) -> None:
    """Return None: the first call makes the cache."""


def new_cache(model: Any, inputs: CallInputs) -> Any:
    """Make a cache with the model's own new_cache(batch, length)."""
    return model.new_cache(*inputs.tokens.shape)


def grown_in_place(
    model: Any, inputs: CallInputs, cache: Any, more: dict[str, Any]
) -> tuple[Tensor, Any]:
    """Return the step of a model whose forward takes a cache and extends it."""
    return model(inputs.tokens, cache=cache, **more), cache


def new_cache_at_zero(model: Any, inputs: CallInputs) -> Any:
    """Make a cache with the model's own new_cache, together with the number of tokens so far, 0."""
    return new_cache(model, inputs), 0


def grown_and_counted(start: str) -> Step:
    """Return the step of a model that also takes the position at which the tokens begin."""

    def step(
        model: nn.Module, inputs: CallInputs, cache: Any, more: dict[str, Any]
    ) -> tuple[Tensor, Any]:
        kept, so_far = cache
        logits, kept = grown_in_place(model, inputs, kept, {start: so_far, **more})
        return logits, (kept, so_far + inputs.tokens.shape[1])

    return step


def new_cache_of_source(model: Any, inputs: CallInputs) -> Any:
    """Make a cache with an encoder-decoder's own encode and new_cache."""
    masked = inputs.source_real is not None and "real" in arguments_of(model, "encode")
    real = {"real": inputs.source_real} if masked else {}
    return model.new_cache(model.encode(inputs.source, **real), inputs.tokens.shape[1])


def decoded_in_place(
    model: Any, inputs: CallInputs, cache: Any, more: dict[str, Any]
) -> tuple[Tensor, Any]:
    """Return the step of an encoder-decoder whose decode takes a cache and extends it."""
    return model.decode(inputs.tokens, cache=cache, **more), cache


def placed_by_the_caller(form: Form) -> Step:
    """Return the step of a model with a cache inside it, and with an argument for the position of
    each token."""

    def step(
        model: nn.Module, inputs: CallInputs, cache: Any, more: dict[str, Any]
    ) -> tuple[Tensor, Any]:
        so_far = cache or 0
        places = {str(form.places): form.places_from(so_far, inputs.tokens)}
        output = form.call(model, inputs, **places, **more)
        return form.returned_logits(output, inputs), so_far + inputs.tokens.shape[1]

    return step


def reset(name: str) -> Callable[[nn.Module, CallInputs], None]:
    """Return a function that clears the cache inside the model by calling this method."""

    def make(model: nn.Module, _inputs: CallInputs) -> None:
        getattr(model, name)()

    return make


def kept_by_the_model(form: Form, flags: dict[str, Any]) -> Step:
    """Return the step of a model that stores its cache in itself, if these flags are set."""

    def step(
        model: nn.Module, inputs: CallInputs, _cache: Any, more: dict[str, Any]
    ) -> tuple[Tensor, Any]:
        output = form.call(model, inputs, **flags, **more)
        return form.returned_logits(output, inputs), None

    return step


def counted_by_the_caller(form: Form, start: str, flags: dict[str, Any] | None = None) -> Step:
    """Return the step of a model with a cache inside it, and with an argument for the position at
    which the tokens begin. Only the number of tokens so far passes from step to step."""

    def step(
        model: nn.Module, inputs: CallInputs, cache: Any, more: dict[str, Any]
    ) -> tuple[Tensor, Any]:
        so_far = cache or 0
        output = form.call(model, inputs, **{start: so_far}, **(flags or {}), **more)
        return form.returned_logits(output, inputs), so_far + inputs.tokens.shape[1]

    return step
