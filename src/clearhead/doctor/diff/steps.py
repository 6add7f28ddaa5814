"""Feeds tokens in pieces through the port's cache, and compares the logits with those of the
reference's whole pass."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..calls import CallInputs
from ..form import CALL_ERRORS
from .departures import Departure, walk
from .layouts import relative
from .sides import Program


@dataclass(frozen=True)
class Steps:
    """How the port's steps compare with the reference's whole pass."""

    pieces: tuple[int, ...]
    difference: float
    """The difference of the logits, as a share of their size."""
    bound: float
    position: int | None = None
    """The first position that differs."""
    departures: tuple[Departure, ...] = ()
    """The departures, if the reference has a cache to compare each step with."""
    problem: str = ""
    """The error that the port raised."""

    @property
    def same(self) -> bool:
        """Tell whether the steps give the logits of the whole pass."""
        return not self.problem and self.difference <= self.bound


def compare_steps(
    reference: Program, port: Program, inputs: CallInputs, bound: float
) -> Steps | None:
    """Compare the steps; None if the port has no cache that the doctor knows how to use."""
    if port.patient is None or port.patient.calls.cached is None:
        return None
    length = inputs.tokens.shape[1]
    pieces = [length - 3, 1, 1, 1] if length > 4 else [length - 1, 1]
    ours = _stepping(port, inputs, pieces)
    whole = reference.run().logits
    try:
        stepped = ours.run().logits
    except CALL_ERRORS as error:
        problem = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        return Steps(tuple(pieces), torch.inf, bound, problem=problem)
    assert whole is not None and stepped is not None
    n = min(whole.shape[-1], stepped.shape[-1])
    difference = relative(whole[..., :n], stepped[..., :n])
    found = Steps(tuple(pieces), difference, bound)
    if found.same:
        return found
    size = float(whole.abs().max())
    apart = (whole[..., :n] - stepped[..., :n]).abs().amax(dim=(0, 2)) / size
    found = replace(found, position=int((apart > bound).nonzero()[0]))
    if reference.patient is None or reference.patient.calls.cached is None:
        return found
    theirs = _stepping(reference, inputs, pieces)
    try:
        again = theirs.run().logits
        if again is None or relative(whole, again) > bound:
            return found  # the reference's own steps are no standard
        return replace(found, departures=tuple(walk(theirs, ours).departures))
    except CALL_ERRORS:
        return found


def _stepping(side: Program, inputs: CallInputs, pieces: list[int]) -> Program:
    assert side.patient is not None and side.patient.calls.cached is not None
    cached: Callable[[nn.Module, CallInputs, list[int]], Tensor] = side.patient.calls.cached

    def call(model: nn.Module) -> Tensor:
        return cached(model, inputs, pieces)

    return replace(side, call=call, fixes=type(side.fixes)(), fresh=True)
