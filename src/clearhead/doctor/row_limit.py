"""Finds out how many sequences a model takes at once."""

from dataclasses import replace

import torch

from .form import CALL_ERRORS, Form
from .patient import Patient

# As many as the checks ask for.
_MOST = 64
_SHORT = 2


def with_row_limit(patient: Patient, form: Form | None = None) -> Patient:
    """Return the patient with the largest number of rows that the model takes, if checks need more
    rows. A model may, for example, reserve a cache for a fixed number of them. The model then gets
    the rows in pieces."""
    if patient.max_rows is None and not _takes(patient, form, _MOST):
        least, most = 2, _MOST
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (middle, most) if _takes(patient, form, middle) else (least, middle)
        patient = replace(patient, max_rows=least)
    if patient.max_rows is None:
        return patient
    shown = {"rows": f"{'=' if patient.exact_rows else '<='} {patient.max_rows}"}
    return replace(patient, recognised={**patient.recognised, **shown})


def _takes(patient: Patient, form: Form | None, n_rows: int) -> bool:
    """Tell whether the model takes this many rows. Short sequences are enough to tell, unless the
    model does not take them."""
    logits = patient.calls.logits if form is None else form.logits
    for length in (min(_SHORT, patient.length), patient.length):
        try:
            with torch.no_grad():
                source = length if patient.equal_lengths else None
                logits(patient.plain, patient.draw(n_rows, length, source))
        except CALL_ERRORS:
            continue
        return True
    return False
