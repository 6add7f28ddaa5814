"""Checks that norms are norms before training."""

from collections.abc import Iterator

import torch

from ..blocks import find_towers, is_norm, stream_into
from ..findings import Finding, NotApplicableError
from ..form import CALL_ERRORS
from ..patient import Patient
from ..witness import watch

# A gain of 1 and a shift of 0 give a size of 1; a shift of 1 gives 1.41.
_ALLOWED = 0.2
# The size of its input does not matter to a norm, apart from the epsilon.
_LARGER, _SCALE_ALLOWED = 4.0, 1.5


def norms(patient: Patient) -> Iterator[Finding]:
    """A fresh norm of the stream returns numbers of size 1, and its output does not depend on the
    size of its input."""
    if not patient.fresh:
        raise NotApplicableError("trained")
    model = patient.plain
    layers = {layer for tower in find_towers(patient) for layer in tower.layers}
    with torch.no_grad():
        visits = watch(model, lambda: patient.logits(model, patient.draw(2)))
        widths = {stream_into(visit).shape[-1] for visit in visits if visit.path in layers}
        for visit in visits:
            weighted = next(visit.module.parameters(recurse=False), None) is not None
            if not weighted or not is_norm(visit.module) or len(visit.given) != 1:
                continue
            if hasattr(visit.module, "running_mean"):
                continue  # by what it saw in training, and not by what it is given
            try:
                returned = visit.module(torch.randn_like(visit.given[0]))
            except CALL_ERRORS:
                continue  # it takes more than numbers
            if not isinstance(returned, torch.Tensor) or returned.shape != visit.given[0].shape:
                continue
            size = float(returned.double().square().mean().sqrt())
            # Queries and keys may rightly be normalised to another size.
            of_the_stream = not widths or visit.given[0].shape[-1] in widths
            if of_the_stream and not abs(size - 1) <= _ALLOWED:
                yield Finding("norms.size", "warning", {"size": size}, place=visit.path)
                return
            larger = visit.module(_LARGER * torch.randn_like(visit.given[0]))
            ratio = float(larger.double().std() / returned.double().std().clamp(min=1e-12))
            if not 1 / _SCALE_ALLOWED < ratio < _SCALE_ALLOWED:
                yield Finding("norms.scale", "error", {"ratio": ratio}, place=visit.path)
                return
