"""Runs a model's own generation, for the checks of generation."""

from typing import Any

import torch
from torch import Tensor, nn

from ..calls import CallInputs, Generated
from ..findings import NotApplicableError
from ..form import CALL_ERRORS
from ..patient import Patient

N_NEW = 8
PROMPT = 3
N_PROMPTS = 3


def scene(patient: Patient) -> tuple[nn.Module, CallInputs]:
    """Return a copy with noisy weights, so that its argmax differs between positions, and a short
    prompt."""
    if patient.calls.generate is None:
        raise NotApplicableError("no_generate")
    return patient.noisy.eval(), prompts(patient)[0]


def prompts(patient: Patient) -> list[CallInputs]:
    """Return several prompts, since chance and a wrong cache do not change every text."""
    length = min(PROMPT, patient.length)
    return [patient.draw(1, length, seed=seed) for seed in range(N_PROMPTS)]


def generate(
    patient: Patient, model: nn.Module, prompt: CallInputs, n_new: int, **settings: Any
) -> Generated:
    """Return what the model's own generation returns."""
    assert patient.calls.generate is not None
    with torch.no_grad():
        return patient.calls.generate(model, prompt, n_new, **settings)


def greedy_settings(patient: Patient) -> dict[str, Any]:
    """Return settings for greedy generation: top_k=1 leaves one choice, if there is such a setting,
    and a temperature near 0 leaves next to no other. Without either, generation is greedy by
    itself, or cannot be."""
    if "top_k" in patient.calls.settings:
        return {"top_k": 1}
    return {"temperature": 1e-5} if "temperature" in patient.calls.settings else {}


def draws(patient: Patient, model: nn.Module) -> bool:
    """Tell whether generation draws random numbers in evaluation mode."""
    before = torch.get_rng_state()
    generate(patient, model, prompts(patient)[0], N_NEW)
    return not torch.equal(before, torch.get_rng_state())


def rescoring_logits(
    patient: Patient, model: nn.Module, prompt: CallInputs, run: Generated
) -> Tensor:
    """Return the logits of the full pass for each generated token, in evaluation mode."""
    tokens = torch.cat((run.prefix, run.tokens), dim=1)
    with torch.no_grad():
        logits = patient.logits(model, CallInputs(tokens, prompt.source))
    return logits[:, run.prefix.shape[1] - 1 : -1]


def error_of(
    patient: Patient, model: nn.Module, prompt: CallInputs, n_new: int, **settings: Any
) -> Exception | None:
    """Return the error that generation raises, if it does."""
    try:
        generate(patient, model, prompt, n_new, **settings)
    except CALL_ERRORS as error:
        return error
    return None


def unclear_error(
    patient: Patient, model: nn.Module, prompt: CallInputs, **settings: Any
) -> str | None:
    """Return the error as text, if it does not name the caller's value."""
    error = error_of(patient, model, prompt, 2, **settings)
    return text_of(error) if error is not None and is_unclear(error) else None


def is_unclear(error: Exception) -> bool:
    """Tell whether an error comes from inside torch and does not name the caller's value.
    ValueErrors (and types that derive from them) count as clear, because they are raised on
    purpose."""
    return isinstance(error, IndexError | RuntimeError) and not isinstance(error, ValueError)


def text_of(error: Exception) -> str:
    """Return an error as one line."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
