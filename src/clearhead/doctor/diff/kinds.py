"""Finds the kind of two models from their outputs, if neither program states it."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from ..calling import LABELS, Signature
from ..calls import Calls
from ..form import Form, has_forward
from ..patient import ModelKind, Patient, change_size
from ..recognition import RecognitionError, stated_kind


def unstated(reference: nn.Module, port: nn.Module) -> bool:
    """Tell whether neither program says what kind of model it is."""
    return stated_kind(reference) is None and stated_kind(port) is None


def assumed_kind(reference: nn.Module, open_as: Callable[[ModelKind], Patient]) -> ModelKind:
    """Return the first kind under which the reference can be called. Models that take one
    sequence are encoders if a later token changes an earlier output."""
    problems: list[RecognitionError] = []
    for kind in _likely(reference):
        try:
            patient = open_as(kind)
        except RecognitionError as error:
            problems.append(error)
            continue
        if patient.kind == "decoder" and _looks_ahead(patient):
            return "encoder"
        return patient.kind
    raise problems[0]


def _likely(model: nn.Module) -> tuple[ModelKind, ...]:
    """Return the likely kind by the arguments: two sequences without which the model cannot be
    called are source and target."""
    if not has_forward(model):
        return ("encoder-decoder", "decoder")
    patient = Patient(model, "decoder", 1, Calls(logits=Form(None, 1).logits))
    signature = Signature.of(patient)
    needed = [n for n in signature.sequences if n in signature.needed and n not in LABELS]
    if len(needed) > 1 or "decoder_input_ids" in signature.arguments:
        return ("encoder-decoder", "decoder")
    return ("decoder", "encoder-decoder")


def _looks_ahead(patient: Patient) -> bool:
    inputs = patient.draw(patient.rows(2))
    last = inputs.tokens.clone()
    last[:, -1] = patient.other_tokens(inputs.tokens)[:, -1]
    with torch.no_grad():
        one, other = (
            patient.logits(patient.plain, given)[:, :-1]
            for given in (inputs, replace(inputs, tokens=last))
        )
    return one.numel() > 0 and change_size(one, other) > patient.tolerance
