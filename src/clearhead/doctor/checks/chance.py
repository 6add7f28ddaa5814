"""Checks randomness: evaluation has none, and training has as much as the configuration says."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..attention_trace import trace_attention
from ..calls import CallInputs
from ..copying import copy_model
from ..findings import Finding, NotApplicableError
from ..form import CALL_ERRORS
from ..patient import Patient, change_size
from ..witness import first_change, watch, watching

# Nobody drops more than this; who writes 0.9 means the share to keep.
_HIGH = 0.65


def determinism(patient: Patient) -> Iterator[Finding]:
    """The same call twice in evaluation mode gives the same bits, and leaves its input
    unchanged."""
    model, inputs = patient.copy(), patient.draw(3)
    given = [each for each in (inputs.tokens, inputs.source) if each is not None]
    kept = [each.clone() for each in given]
    with torch.no_grad():
        one, other = patient.logits(model, inputs), patient.logits(model, inputs)
    if not all(map(torch.equal, given, kept)) or _edits_labels(patient):
        yield Finding("determinism.input", "error")
        return
    if model.training:
        yield Finding("determinism.mode", "error")
    elif not torch.equal(one, other) and one.isfinite().all():
        with torch.no_grad():
            before = watch(model, lambda: patient.logits(model, inputs))
            after = watch(model, lambda: patient.logits(model, inputs))
        place = first_change(before, after, lambda a, b: not torch.equal(a, b))
        yield Finding("determinism.eval", "error", {"change": change_size(one, other)}, place)
    else:
        yield from _remembers(patient)
        yield from _grows(patient, model)


def _edits_labels(patient: Patient) -> bool:
    """Tell whether a call changes the labels that it is given. Some of these labels are ignored
    targets."""
    if patient.calls.labelled is None:
        return False
    inputs = patient.draw(patient.rows(2))
    labels = inputs.tokens.clone()
    labels[:, -2:] = patient.calls.ignored
    kept = labels.clone()
    try:
        with torch.no_grad():
            patient.calls.labelled(patient.plain, inputs, labels)
    except CALL_ERRORS:
        return False
    return not torch.equal(labels, kept)


def _remembers(patient: Patient) -> Iterator[Finding]:
    """Check that a call after another batch gives what it gives in a model that was never called.
    The other batch has the same shape and some padding, or is larger, which may leave more
    state."""
    n_rows, length = patient.rows(3), patient.length
    short = length if patient.equal_lengths else max(length - 3, 1)
    for case, n_before, n_tokens in (("shape", n_rows, length), ("larger", n_rows + 1, short)):
        inputs, before = patient.draw(n_rows, n_tokens), patient.draw(n_before, seed=1)
        if case == "shape":
            _pad_the_end(patient, before)
        fresh, used = (copy_model(patient.model, share_weights=True).eval() for _ in range(2))
        with torch.no_grad():
            try:
                patient.logits(used, before)
                expected = patient.logits(fresh, inputs)
            except CALL_ERRORS:
                continue  # another check says so
            after = patient.logits(used, inputs)
        change = change_size(expected, after)
        if expected.isfinite().all() and not change <= 1e-5:
            yield Finding("determinism.state", "error", {"change": change})
            return


def _pad_the_end(patient: Patient, inputs: CallInputs) -> None:
    if patient.pad_id is not None and patient.length > 4:
        inputs.tokens[:, -2:] = patient.pad_id
        if inputs.source is not None and patient.source_length > 4:
            inputs.source[:, -2:] = patient.pad_id


def _grows(patient: Patient, model: nn.Module) -> Iterator[Finding]:
    """Check that what modules keep besides their weights does not grow with each call."""
    inputs = patient.draw(2)
    kept: list[dict[str, int]] = []
    with torch.no_grad():
        for _ in range(4):
            patient.logits(model, inputs)
            kept.append({path: _kept(module) for path, module in model.named_modules()})
    for path in kept[0]:
        sizes = [sizes[path] for sizes in kept]
        grown = [later - size for size, later in pairwise(sizes)]
        if grown[0] > 0 and len(set(grown)) == 1:
            yield Finding("determinism.grows", "warning", {"n": grown[0]}, place=path)
            return


_OWN = set(vars(nn.Module()))


def _kept(module: nn.Module) -> int:
    """Return how many numbers a module keeps in tensors that are plain attributes."""

    def count(value: Any, depth: int = 3) -> int:
        if isinstance(value, torch.Tensor):
            return value.numel()
        items = value.values() if isinstance(value, dict) else value
        if not depth or not isinstance(items, list | tuple | type({}.values())):
            return 0
        return sum(count(item, depth - 1) for item in items)

    return sum(count(value) for name, value in vars(module).items() if name not in _OWN)


def dropout(patient: Patient) -> Iterator[Finding]:
    """Each dropout layer drops what it says, scales the rest, and is not followed by another."""
    model = patient.copy().train()
    layers = {
        path: module
        for path, module in model.named_modules()
        if type(module).__name__.lower().endswith("dropout") and _rate(module) > 0
    }
    if not layers:
        raise NotApplicableError("no_dropout")
    dropped: dict[int, tuple[str, Tensor, Tensor]] = {}
    findings: list[Finding] = []
    called: set[str] = set()

    def enter(path: str, _: nn.Module) -> None:
        called.add(path)

    def leave(path: str, module: nn.Module, given: Any, output: Any) -> None:
        if path not in layers or not given[0] or not isinstance(output, torch.Tensor):
            return
        given = given[0][0]
        if (earlier := dropped.get(given.data_ptr())) is not None:
            findings.append(_twice(path, module, earlier, output))
        elif problem := _wrong_rate(path, module, given, output):
            findings.append(problem)
        # The output is kept, so that its address is not used again.
        dropped[output.data_ptr()] = (path, given, output)

    with torch.no_grad(), watching(model, enter=enter, leave=leave):
        patient.logits(model, patient.draw(_batch(model)))
    yield from {finding.case: finding for finding in reversed(findings)}.values()
    yield from _on_scores(patient, model)
    high = [(path, _rate(layer)) for path, layer in layers.items() if _rate(layer) > _HIGH]
    if high:
        yield Finding("dropout.high", "warning", {"asked": high[0][1]}, place=high[0][0])
    silent = [p for p in layers if p not in called and p.rpartition(".")[0] in called]
    yield from _unused(patient, model, silent)


def _on_scores(patient: Patient, model: nn.Module) -> Iterator[Finding]:
    """Tell whether dropout acts on the scores: a score is exactly 0 where the product of query and
    key is another number."""
    inputs = patient.draw(8)
    length = inputs.tokens.shape[1]
    shapes = {(length, length)}
    for seen in trace_attention(model, lambda: patient.logits(model, inputs), shapes):
        if seen.product is None:
            continue
        open_ = (seen.weights > 0) & (seen.product != 0)
        share = float((seen.scores[open_] == 0).double().mean()) if open_.any() else 0.0
        if 0.01 < share < 0.99:
            yield Finding("dropout.scores", "error", {"share": share}, place=seen.place)
            return


def _unused(patient: Patient, model: nn.Module, silent: list[str]) -> Iterator[Finding]:
    """Find dropout layers that were never called, though the module around them was. Their rates
    may still be read for a fused kernel: then another rate changes the result of the same draws."""
    inputs = patient.draw(2)

    def logits() -> Tensor:
        torch.manual_seed(patient.seed)
        with torch.no_grad():
            return patient.logits(model, inputs)

    for name in dict.fromkeys(path.rpartition(".")[2] for path in silent):
        paths = [path for path in silent if path.rpartition(".")[2] == name]
        modules: list[Any] = [model.get_submodule(path) for path in paths]
        before, asked = logits(), _rate(modules[0])
        for module in modules:
            module.p = 0.9
        if torch.equal(before, logits()) and not _fused_at(patient, model, asked):
            numbers = {"n": len(paths), "asked": asked}
            yield Finding("dropout.unused", "warning", numbers, place=paths[0])


def _fused_at(patient: Patient, model: nn.Module, rate: float) -> bool:
    """Tell whether a fused kernel drops at this rate, which was fixed when the model was built."""
    kernels = _FusedRates()
    with torch.no_grad(), kernels:
        patient.logits(model, patient.draw(2))
    return any(abs(float(seen) - rate) < 1e-6 for seen in kernels.rates)


class _FusedRates(TorchFunctionMode):
    """Collects the dropout rates with which fused attention is called, under any argument name."""

    def __init__(self) -> None:
        super().__init__()
        self.rates: list[float] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            self.rates.append(kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0))
        return func(*args, **kwargs)


def _batch(model: nn.Module) -> int:
    """Return a batch with enough draws to distinguish 0.1 from 0.12; wide layers give more draws
    per token."""
    return 64 if sum(p.numel() for p in model.parameters()) < 1_000_000 else 12


def _rate(module: nn.Module) -> float:
    rate = getattr(module, "p", 0.0)
    return rate if isinstance(rate, float) else 0.0


def _twice(
    path: str, module: nn.Module, earlier: tuple[str, Tensor, Tensor], output: Tensor
) -> Finding:
    first, given, _ = earlier
    measured = float((output[given != 0] == 0).double().mean())
    numbers = {"asked": _rate(module), "measured": measured, "first": first}
    return Finding("dropout.twice", "error", numbers, place=path)


def _wrong_rate(path: str, module: nn.Module, given: Tensor, output: Tensor) -> Finding | None:
    # Numbers at the edge of what can be written come back rounded.
    there = given.abs() > 1e6 * torch.finfo(given.dtype).tiny
    n_there = int(there.sum())
    asked = _rate(module)
    if output.shape != given.shape or n_there < 100:
        return None
    # Six standard deviations of a fair draw: one false alarm in 10⁹.
    margin = 6 * (asked * (1 - asked) / n_there) ** 0.5
    if output.data_ptr() == given.data_ptr():  # in place: only the zeros of what was given are left
        measured = int((output == 0).sum()) / output.numel()
        if measured >= asked - margin:
            return None
        numbers = {"asked": asked, "measured": measured}
        return Finding("dropout.rate", "error", numbers, place=path)
    measured = int((there & (output == 0)).sum()) / n_there
    if abs(measured - asked) > margin and not _drops_in_blocks(given, output):
        numbers = {"asked": asked, "measured": measured}
        return Finding("dropout.rate", "error", numbers, place=path)
    kept = (output / given)[there][:1000]
    kept = kept[kept != 0].double()
    if kept.numel() and abs(float(kept.median()) * (1 - asked) - 1) > 1e-3:
        numbers = {"measured": float(kept.median()), "right": 1 / (1 - asked)}
        return Finding("dropout.scale", "error", numbers, place=path)
    return None


def _drops_in_blocks(given: Tensor, output: Tensor) -> bool:
    """Tell whether a layer drops whole channels or rows, as Dropout1d does: there are then too few
    draws to judge."""
    lost = (output == 0) & (given != 0)
    return any(
        lost.shape[axis] > 1 and bool((lost == lost.select(axis, 0).unsqueeze(axis)).all())
        for axis in range(lost.dim())
    )
