"""Checks where generation ends."""

from collections.abc import Iterator
from typing import Any

from torch import nn

from ..findings import Finding, NotApplicableError
from ..form import CALL_ERRORS
from ..generating import NEVER
from ..patient import Patient
from .runs import (
    N_NEW,
    PROMPT,
    draws,
    generate,
    greedy_settings,
    prompts,
    scene,
)

_N_ROWS = 12
# Each is tried with the whole batch.
_N_ENDS = 3


def stops(patient: Patient) -> Iterator[Finding]:
    """Generation ends at the end-of-sequence token."""
    model, prompt = scene(patient)
    if "eos" not in patient.calls.settings:
        if patient.calls.generate_mentions_end:
            raise NotApplicableError("end_not_set")
        yield Finding("stops.no_setting", "note")
        return
    settings = greedy_settings(patient)
    if not settings and draws(patient, model):
        raise NotApplicableError("only_samples")
    for prompt in prompts(patient):
        free = generate(patient, model, prompt, N_NEW, **settings).tokens
        # The token that greedy generation writes first is declared to be the end.
        end = int(free[0, 0])
        if not (free[0, 1:] != end).any():
            continue  # one token, again and again: nothing to tell
        stopped = generate(patient, model, prompt, N_NEW, **settings, eos=end).tokens
        after = stopped[0, 1:]
        same = stopped.shape[1] == N_NEW and bool((after == free[0, 1:]).all())
        if same:
            yield Finding("stops.runs_on", "error", {"n": len(after)})
            return
    yield from _any_row(patient, model, settings)


def _any_row(patient: Patient, model: nn.Module, settings: dict[str, Any]) -> Iterator[Finding]:
    """Check a batch in which one row ends at once; the other row must continue as it would
    alone."""
    n_rows = patient.rows(_N_ROWS)
    prompt = patient.draw(n_rows, min(PROMPT, patient.length))
    try:
        # Without an end: one that it has by itself may come too soon.
        free = generate(patient, model, prompt, N_NEW, **settings, eos=NEVER).tokens
    except CALL_ERRORS:
        return  # it takes one prompt at a time
    if free.shape != (n_rows, N_NEW):
        return
    # The end of the first row comes first: some code looks at that row alone.
    for end in list(dict.fromkeys(free[:, 0].tolist()))[:_N_ENDS]:
        others = (~(free == end).any(dim=1)).nonzero().flatten().tolist()
        if not others:
            continue
        tokens = generate(patient, model, prompt, N_NEW, **settings, eos=end).tokens
        if tokens.shape[1] < N_NEW:
            numbers = {"row": others[0], "n": tokens.shape[1], "of": N_NEW}
            yield Finding("stops.any_row", "error", numbers)
            return
