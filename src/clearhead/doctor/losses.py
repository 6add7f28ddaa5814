"""The ways in which people's Transformers compute a loss. There is one class for each way, and they
are tried in order."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from .calls import CallInputs
from .form import CALL_ERRORS, Form, arguments_of
from .generating import NOTHING, Found
from .patient import Patient

_LABELS = ("labels", "lm_labels", "targets", "label", "gold")
Loss = Callable[[nn.Module, CallInputs, Tensor], Tensor]
_N_SPECIAL = 5
HOW_A_TARGET_COUNTS = ("not at all", "in the divisor", "like any other")
"""What an ignored target may affect, from nothing to everything."""


class LossConvention(ABC):
    """One way of computing a loss."""

    @abstractmethod
    def find(self, patient: Patient, form: Form) -> Found | None:
        """Return the entries of `Calls`, and how the report shows them; None if the model does not
        follow this convention. A call that fails raises one of `CALL_ERRORS`."""


class OnlyALoss(LossConvention):
    """`loss = model(tokens)`: the model returns nothing else, and the targets are the tokens."""

    def find(self, patient: Patient, form: Form) -> Found | None:
        """Find the loss. Only decoders follow this convention."""
        if form.inside is None or patient.kind != "decoder" or form.targets is not None:
            return None
        return {"own_loss": form.call}, {"loss": "loss = model(…)"}


class LossOfItsTarget(LossConvention):
    """`logits, loss = model(source, target)`: the last token of the target is a label only."""

    def find(self, patient: Patient, form: Form) -> Found | None:
        """Find the loss. Such a model returns one row of logits less than the target has tokens."""
        if not form.drops_last or form.inside is not None:
            return None

        def own_loss(model: nn.Module, inputs: CallInputs) -> Tensor:
            return loss_in(form.call(model, inputs))

        with torch.no_grad():
            own_loss(patient.plain, patient.draw(patient.rows(2)))
        return {"own_loss": own_loss}, {"loss": "loss = model(…)"}


class LabelsThatAreRead(LossConvention):
    """`model(source, labels)`: the model moves the labels itself, and its decoder reads them."""

    def find(self, patient: Patient, form: Form) -> Found | None:
        """Find the loss. The doctor does not examine what the model computes from the labels; it
        only checks whether the model leaves them unchanged."""
        if not form.shifts_itself or form.tokens is not None or _label_of(patient) is None:
            return None

        def labelled(model: nn.Module, inputs: CallInputs, targets: Tensor) -> Any:
            return form.call(model, replace(inputs, tokens=targets))

        return {"labelled": labelled}, {}


class LossOfClasses(LossConvention):
    """`model(tokens, labels=…)`, where labels are classes, of whole sequences or of each token."""

    def find(self, patient: Patient, form: Form) -> Found | None:
        """Find the loss. The logits of such a model are not scores of its vocabulary."""
        name = _argument_of_labels(patient, form)
        if name is None or not (form.pooled or form.vocab_size != patient.vocab_size):
            return None
        if form.length_first or form.exact_length is not None:
            return NOTHING

        def loss(model: nn.Module, inputs: CallInputs, labels: Tensor) -> Tensor:
            return loss_in(form.call(model, inputs, **{name: labels}))

        inputs = patient.draw(patient.rows(3))
        labels = inputs.tokens % form.vocab_size
        with torch.no_grad():
            loss(patient.plain, inputs, labels[:, 0] if form.pooled else labels)
        return {"class_loss": loss}, {"loss": f"loss = model(…, {name}=…)"}


class LossOfFilledTokens(LossConvention):
    """`model(tokens, labels=…)`, where the model only predicts what a token replaces. Such a model
    may see everything."""

    def find(self, patient: Patient, form: Form) -> Found | None:
        """Find the loss and, by trying, the token that is replaced."""
        name = _argument_of_labels(patient, form)
        if name is None:
            return None
        filled = _filled_token(patient, _loss_of_tokens(form, name))
        if filled is None:
            return None
        return {"fills": filled}, {"loss": f"loss = model(…, {name}=…), where tokens are {filled}"}


class LossOfTokens(LossConvention):
    """`model(tokens, labels=…)` or `targets=…`: a target for each token."""

    def find(self, patient: Patient, form: Form) -> Found | None:
        """Find the loss. The abilities name the target that is ignored, if there is one."""
        name = _argument_of_labels(patient, form)
        if name is None:
            return None
        loss = _loss_of_tokens(form, name)
        ignored, ignores = _ignored_target(patient, loss)
        if ignored is None:
            return None
        # Hugging Face's word for "the inputs again, and the model shifts them".
        shift = 1 if name in ("labels", "lm_labels") and patient.kind == "decoder" else 0
        abilities = {"loss": loss, "labelled": loss, "loss_shift": shift}
        abilities |= {"ignored": ignored, "ignores": ignores, **_from_labels(patient, form, name)}
        told = f", {ignored} is ignored" if ignores else ""
        return abilities, {"loss": f"loss = model(…, {name}=…){told}"}


CONVENTIONS: tuple[LossConvention, ...] = (
    OnlyALoss(),
    LossOfItsTarget(),
    LabelsThatAreRead(),
    LossOfClasses(),
    LossOfFilledTokens(),
    LossOfTokens(),
)


def loss_in(output: Any) -> Tensor:
    """Return the loss in the output of a call. Raises if there is none."""
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if isinstance(output, torch.Tensor):
        loss = output
    if loss is None and isinstance(output, tuple):
        loss = next((t for t in output if isinstance(t, torch.Tensor) and t.dim() == 0), None)
    if not isinstance(loss, torch.Tensor) or loss.dim():
        raise ValueError("no loss was returned")
    return loss


def _label_of(patient: Patient) -> str | None:
    arguments = arguments_of(patient.plain)
    return next((name for name in _LABELS if name in arguments), None)


def _argument_of_labels(patient: Patient, form: Form) -> str | None:
    """Return the argument that takes labels beside the tokens."""
    elsewhere = form.methods or form.shifts_itself or form.inside is not None
    return None if elsewhere else _label_of(patient)


def _loss_of_tokens(form: Form, name: str) -> Loss:
    def loss(model: nn.Module, inputs: CallInputs, targets: Tensor) -> Tensor:
        if not form.length_first:
            return loss_in(form.call(model, inputs, **{name: targets}))
        by_length = targets.t().contiguous()
        output = form.call(model, inputs, **{name: by_length})
        targets.copy_(by_length.t())  # what the model has written into them is seen
        return loss_in(output)

    return loss


def _filled_token(patient: Patient, loss: Loss) -> int | None:
    """Return the token that stands for what the model must predict, if no other position is a
    target. From ordinary tokens, such a model learns nothing."""
    model, inputs = patient.plain, patient.draw(patient.rows(3))
    filled = torch.zeros_like(inputs.tokens, dtype=torch.bool)
    filled[:, ::3] = True

    def measured(tokens: Tensor, targets: Tensor) -> float:
        with torch.no_grad():
            return float(loss(model, replace(inputs, tokens=tokens), targets.clone()))

    targets, others = inputs.tokens, patient.other_tokens(inputs.tokens)
    try:
        if 0 < abs(measured(inputs.tokens, targets)) < math.inf:
            return None
        for token in (*range(_N_SPECIAL), patient.vocab_size - 1):
            tokens = inputs.tokens.masked_fill(filled, token)
            whole, here, elsewhere = (
                measured(tokens, torch.where(changed, others, targets))
                for changed in (torch.zeros_like(filled), filled, ~filled)
            )
            if 0 < whole < math.inf and whole == elsewhere != here:
                return token
    except CALL_ERRORS:
        pass
    return None


def _ignored_target(patient: Patient, loss: Loss) -> tuple[int | None, bool]:
    """Return the target that counts least, among the targets that are usually ignored and that the
    loss accepts, and whether it is ignored; None if the loss accepts none of them."""
    model, inputs = patient.plain, patient.draw(patient.rows(3))
    taken: list[int] = []
    for ignored in (-100, -1, *([] if patient.pad_id is None else [patient.pad_id]), 0):
        targets = inputs.tokens.clone()
        targets[:, 0] = ignored
        try:
            with torch.no_grad():
                loss(model, inputs, targets)
        except (IndexError, RuntimeError):
            continue
        taken.append(ignored)
    if not taken:
        return None, False
    counts = {ignored: _how_it_counts(loss, model, inputs, ignored) for ignored in taken}
    ignored = min(taken, key=lambda target: HOW_A_TARGET_COUNTS.index(counts[target]))
    # Token 0 is the last that was tried: where it counts, none is known that does not.
    known = counts[ignored] != "like any other" or ignored in (-100, -1, patient.pad_id)
    return ignored, known


def _how_it_counts(loss: Loss, model: nn.Module, inputs: CallInputs, ignored: int) -> str:
    """Return the loss of a batch in which half of the rows have only this target, as a share of the
    loss of the other rows: 1 if the target does not count, a half if the loss is divided by all
    targets."""
    inputs, targets = inputs.rows(slice(0, 2)), inputs.tokens[:2].clone()
    targets[1:] = ignored
    try:
        with torch.no_grad():
            whole = loss(model, inputs, targets)
            alone = loss(model, inputs.rows(slice(0, 1)), targets[:1])
    except CALL_ERRORS:
        return "like any other"
    share = round(float(whole / alone), 3)
    return {1.0: "not at all", 0.5: "in the divisor"}.get(share, "like any other")


def _from_labels(patient: Patient, form: Form, name: str) -> dict[str, Any]:
    """Return the logits of an encoder-decoder that is given only labels, and makes from them what
    its decoder reads."""
    reads = arguments_of(patient.model).get(form.tokens or "")
    if not form.two_sequences or reads is None or reads.default is not None:
        return {}

    def from_labels(model: nn.Module, inputs: CallInputs, labels: Tensor) -> Tensor:
        output = form.call(model, inputs, **{name: labels, str(form.tokens): None})
        return form.returned_logits(output, inputs)

    inputs = patient.draw(patient.rows(2))
    try:
        with torch.no_grad():
            from_labels(patient.plain, inputs, inputs.tokens)
    except CALL_ERRORS:
        return {}
    return {"from_labels": from_labels}
