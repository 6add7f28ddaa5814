"""Checks several prompts in one batch."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..calls import CallInputs, Generated
from ..findings import Finding, NotApplicableError
from ..form import CALL_ERRORS
from ..patient import Patient
from .runs import (
    N_NEW,
    N_PROMPTS,
    PROMPT,
    draws,
    error_of,
    generate,
    greedy_settings,
    rescoring_logits,
    scene,
    text_of,
)

_N_PADS = 2


def batch_generation(patient: Patient) -> Iterator[Finding]:
    """Each prompt of a batch gets the same text as alone."""
    model, _ = scene(patient)
    settings = greedy_settings(patient)
    if not settings and draws(patient, model.eval()):
        raise NotApplicableError("only_samples")
    model = model.eval()
    if patient.rows(N_PROMPTS) < N_PROMPTS:
        raise NotApplicableError("few_rows")
    prompt = patient.draw(N_PROMPTS, min(PROMPT, patient.length))
    try:
        together = generate(patient, model, prompt, N_NEW, **settings).tokens
    except CALL_ERRORS as error:
        if error_of(patient, model, prompt.rows([0] * N_PROMPTS), N_NEW, **settings) is None:
            yield Finding("batch_generation.fails", "error", {"error": text_of(error)})
            return
        yield Finding("batch_generation.one_prompt", "note", {"error": text_of(error)})
        return
    if len(together) != N_PROMPTS:
        raise NotApplicableError("one_prompt_only")
    for row in range(N_PROMPTS):
        run = generate(patient, model, prompt.rows([row]), N_NEW, **settings)
        alone, n = run.tokens, min(run.tokens.shape[1], together.shape[1])
        differs = (alone[0, :n] != together[row, :n]).nonzero()
        if not len(differs):
            continue
        step = int(differs[0])
        if not _equally_good(patient, model, prompt.rows([row]), run, together[row], step):
            numbers = {"row": row, "n": N_PROMPTS, "step": step}
            yield Finding("batch_generation.rows", "error", numbers)
            return
    yield from _padded_prompts(patient, model, settings)


def _padded_prompts(
    patient: Patient, model: nn.Module, settings: dict[str, Any]
) -> Iterator[Finding]:
    """Return prompts of different lengths in one batch. Padding is on the left if generation takes
    a mask, or on the right if generation writes its tokens over the padding."""
    long, short = PROMPT + _N_PADS, PROMPT
    masked = patient.calls.generate_takes_masks
    if patient.has_source or long > patient.length or (patient.pad_id is None and not masked):
        return
    rows = patient.draw(N_PROMPTS, long)
    tokens, real = rows.tokens.clone(), torch.ones_like(rows.tokens, dtype=torch.bool)
    pads = slice(0, _N_PADS) if masked else slice(short, long)
    tokens[1:, pads] = patient.pad_id or 0
    real[1:, pads] = False
    together = generate(
        patient, model, CallInputs(tokens, real=real if masked else None), N_NEW, **settings
    ).tokens
    for row in range(1, N_PROMPTS):
        prompt = CallInputs(
            tokens[row : row + 1, _N_PADS:] if masked else tokens[row, None, :short]
        )
        answer = together[row]
        if not masked:
            written = len(answer) > long and answer[:short].equal(prompt.tokens[0])
            if not written or int(answer[short]) == patient.pad_id:
                return  # it knows nothing of padding
            answer = answer[short:]
        run = generate(patient, model, prompt, N_NEW, **settings)
        n = min(len(answer), run.tokens.shape[1], N_NEW - _N_PADS)
        differs = (run.tokens[0, :n] != answer[:n]).nonzero()
        if len(differs) and not _equally_good(patient, model, prompt, run, answer, int(differs[0])):
            side = "left" if masked else "right"
            numbers = {"side": side, "step": int(differs[0])}
            yield Finding("batch_generation.padded", "error", numbers, origin=side)
            return


def _equally_good(
    patient: Patient,
    model: nn.Module,
    prompt: CallInputs,
    run: Generated,
    answer: Tensor,
    step: int,
) -> bool:
    """Tell whether two tokens are equally good; then either is right."""
    logits = rescoring_logits(patient, model, prompt, run)[0, step].double()
    gap = logits[run.tokens[0, step]] - logits[answer[step]]
    return abs(float(gap)) <= 1e-3 * float(logits.std())
