"""Checks that a cache saves work and does not change the results."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from ..calls import CallInputs
from ..findings import Finding, NotApplicableError
from ..form import CALL_ERRORS
from ..naming import PACKAGE
from ..patient import Patient, change_size
from .padding import pad, roles
from .runs import text_of

_N_PADS = 3
_ROWS = [2, 0, 0]  # one row goes on twice and one ends, as beams do
_REFUSALS = (ValueError, AssertionError, NotImplementedError)


def cache(patient: Patient) -> Iterator[Finding]:
    """Feeding token by token, and several new tokens at once, gives the logits of the full pass,
    even with padding and with rows that change places."""
    if patient.calls.cached is None:
        raise NotApplicableError("no_cache")
    try:
        yield from _first_difference(patient)
    except CALL_ERRORS as error:
        yield Finding("cache.fails", "error", {"error": text_of(error)})


def _first_difference(patient: Patient) -> Iterator[Finding]:
    cached, length = patient.calls.cached, patient.length
    assert cached is not None
    n_rows = patient.max_rows or 2 if patient.exact_rows else patient.rows(2)
    model, inputs = patient.specimen, patient.draw(n_rows)
    with torch.no_grad():
        full = patient.logits(model, inputs)
        refused: str | None = None
        for case, pieces in (
            ("one", [1] * length),
            ("after_prompt", [length - 2, 1, 1]),
            ("several", [length - 3, 3]),
        ):
            if min(pieces) < 1:
                continue  # the model takes too few tokens
            try:
                logits = cached(model, inputs, pieces)
            except _REFUSALS as error:
                if case == "one" or not _in_words(error):
                    raise
                refused = case
                yield Finding("cache.one_at_a_time", "note", {"error": text_of(error)})
                break
            if not change_size(full, logits) <= patient.tolerance:
                yield _finding(patient, case, full, logits)
                return
    yield from _padded(patient, refused)
    yield from _reordered(patient, refused)


def _in_words(error: Exception) -> bool:
    """Tell whether the model itself refuses a call: its own code, and not torch or the doctor,
    raises the error, and the reason is not that values cannot be unpacked."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__"))
    own = not module.startswith(("torch.", f"{PACKAGE}."))
    return own and "unpack" not in str(error)


def _accepted(pieces: list[int], refused: str | None) -> list[int]:
    """Return the same tokens in pieces that the model accepts: single tokens after the prompt if it
    refused several, or single tokens from the beginning if it refused a prompt."""
    if refused is None:
        return pieces
    prompt = pieces[0] if refused == "several" else 1
    return [prompt] + [1] * (sum(pieces) - prompt)


def _finding(patient: Patient, case: str, full: Tensor, logits: Tensor) -> Finding:
    size = full.double().square().mean().sqrt()
    wrong = (full - logits).abs().amax(dim=(0, 2)) > patient.tolerance * size
    first = int(wrong.nonzero()[0]) if wrong.any() else 0
    return Finding(
        f"cache.{case}", "error", {"change": change_size(full, logits), "position": first}
    )


def _padded(patient: Patient, refused: str | None) -> Iterator[Finding]:
    """Check prompts of different lengths in one batch, with pads on the left of the tokens, or in
    the source, whose mask a cache must remember."""
    cached = patient.calls.cached
    assert cached is not None
    if patient.length < _N_PADS + 3 or patient.equal_lengths or patient.one_sequence:
        return
    if patient.rows(3) < 3:
        return
    for role, side in (("tokens", "left"), ("source", "right")):
        possible = role in roles(patient)
        if role == "tokens":
            possible = possible and patient.kind == "decoder" and patient.calls.cache_takes_masks
            # Pads that are fed one by one come before anything that they may look at.
            possible = possible and refused != "after_prompt"
        if not possible:
            continue
        short = patient.length - _N_PADS
        inputs = patient.draw(3, short, max(min(patient.source_length, short - 1), 1))
        inputs = _some_padded(pad(patient, inputs, role, side), patient, role)
        length = inputs.tokens.shape[1]
        pieces = _accepted([length - 3, 1, 2], refused)

        def both(
            model: nn.Module, inputs: CallInputs = inputs, pieces: list[int] = pieces
        ) -> tuple[Tensor, Tensor]:
            return patient.logits(model, inputs), cached(model, inputs, pieces)

        compared = _in_some_precision(patient, both)
        if compared is None:
            continue
        full, logits, tolerance = compared
        if role == "tokens":  # what pads say does not matter
            full, logits = full[:, -short:], logits[:, -short:]
        if not change_size(full, logits) <= tolerance:
            change = change_size(full, logits)
            yield Finding("cache.padded", "error", {"change": change, "role": role})
            return


def _some_padded(inputs: CallInputs, patient: Patient, role: str) -> CallInputs:
    """Return inputs in which some rows are padded. The first row is as long as the batch, as in
    use."""
    tokens: Tensor = getattr(inputs, role).clone()
    tokens[0] = patient.draw(1, len(tokens[0]), len(tokens[0]), seed=2).tokens[0]
    mask = "real" if role == "tokens" else "source_real"
    real: Tensor | None = getattr(inputs, mask)
    if real is not None:
        real = real.clone()
        real[0] = True
    return replace(inputs, **{role: tokens, mask: real})


def _in_some_precision(
    patient: Patient, both: Callable[[nn.Module], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor, float] | None:
    """Repeat what is not finite in double precision, in which some masks overflow, in the model's
    own precision. What is not finite there belongs to another check."""
    for model, tolerance in ((patient.specimen, patient.tolerance), (patient.noisy.eval(), 1e-4)):
        with torch.no_grad():
            full, logits = both(model)
        if full.isfinite().all():
            return full, logits, tolerance
    return None


def _reordered(patient: Patient, refused: str | None) -> Iterator[Finding]:
    """Check that rows of the cache can change places, as in beam search, and then continue as those
    rows would."""
    if patient.calls.reordered is None or patient.rows(3) < 3:
        return
    model, inputs = patient.specimen, patient.draw(3)
    pieces = _accepted([patient.length - 2, 2], refused)
    n_last = pieces[-1]
    with torch.no_grad():
        full = patient.logits(model, inputs.rows(_ROWS))[:, -n_last:]
        logits = patient.calls.reordered(model, inputs, pieces, _ROWS)[:, -n_last:]
    if not change_size(full, logits) <= patient.tolerance:
        yield Finding("cache.reordered", "error", {"change": change_size(full, logits)})
