"""A cache saves work and changes nothing."""

from collections.abc import Iterator

import torch

from clearhead.doctor.findings import Finding, NotApplicableError
from clearhead.doctor.patient import Patient, change_size


def cache(patient: Patient) -> Iterator[Finding]:
    """Token by token, and several new tokens at once, give the logits of the full pass."""
    if patient.calls.cached is None:
        raise NotApplicableError("no_cache")
    length = patient.length
    model, inputs = patient.specimen, patient.draw(2)
    with torch.no_grad():
        full = patient.logits(model, inputs)
        for case, pieces in (
            ("one", [1] * length),
            ("after_prompt", [length - 2, 1, 1]),
            ("several", [length - 3, 3]),
        ):
            logits = patient.calls.cached(model, inputs, pieces)
            change = change_size(full, logits)
            if not change <= patient.tolerance:
                wrong = (full - logits).abs().amax(dim=(0, 2)) > patient.tolerance
                first = int(wrong.nonzero()[0]) if wrong.any() else 0
                yield Finding(f"cache.{case}", "error", {"change": change, "position": first})
                return
