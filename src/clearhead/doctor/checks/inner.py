"""Checks the inside of layers (what is between two matrices) and tables of sinusoids."""

import math
from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor, nn

from ..blocks import find_towers
from ..findings import Finding, NotApplicableError
from ..patient import Patient
from ..witness import watch

_PAIRED = 1e-2
_SAME_SIZE = 0.06
# 10000 with its exponent doubled, or halved, allowing for the last frequency's own exponent.
_DOUBLED, _HALVED = 1e8, 1e2


def feed_forward(patient: Patient) -> Iterator[Finding]:
    """A matrix that widens and one that narrows again must have an activation between them."""
    model = patient.plain
    with torch.no_grad():
        visits = watch(model, lambda: patient.logits(model, patient.draw(2)))
    linear = [v for v in visits if isinstance(v.module, nn.Linear) and v.given and v.returned]
    if len(linear) < 2:
        raise NotApplicableError("no_linear")
    for one, other in pairwise(linear):
        up, down = one.module, other.module
        assert isinstance(up, nn.Linear) and isinstance(down, nn.Linear)
        widens = up.out_features > up.in_features and down.out_features == up.in_features
        near = one.path.rpartition(".")[0] == other.path.rpartition(".")[0]
        same = one.returned[0].shape == other.given[0].shape
        if widens and near and same and torch.equal(one.returned[0], other.given[0]):
            numbers = {"first": one.path, "second": other.path}
            yield Finding("feed_forward.linear", "error", numbers, place=one.path)
            return


def initialisation(patient: Patient) -> Iterator[Finding]:
    """If the initial values of some matrices are smaller by √(2 · layers), these must be the
    matrices that write to the residual stream, whose outputs add up over the layers."""
    if not patient.fresh:
        raise NotApplicableError("trained")
    towers = [tower for tower in find_towers(patient) if len(tower.layers) > 1]
    if not towers:
        raise NotApplicableError("no_layers")
    for tower in towers:
        layer = patient.model.get_submodule(tower.layers[0])
        matrices = [(n, m.weight) for n, m in layer.named_modules() if isinstance(m, nn.Linear)]
        wide = [(n, w) for n, w in matrices if w.shape[0] > w.shape[1] == tower.width]
        narrow = [(n, w) for n, w in matrices if tower.width == w.shape[0] < w.shape[1]]
        usual = max((float(w.std()) for _, w in matrices), default=0.0)
        smaller = usual / (2 * len(tower.layers)) ** 0.5
        # A matrix that only reads is smaller, and the one that writes is not.
        reads = [n for n, w in wide if abs(float(w.std()) / smaller - 1) < _SAME_SIZE]
        writes = [n for n, w in narrow if abs(float(w.std()) / usual - 1) < _SAME_SIZE]
        if smaller and reads and writes and len(reads) < len(wide):
            numbers = {"reads": reads[0], "writes": writes[0], "layers": len(tower.layers)}
            place = f"{tower.layers[0]}.{reads[0]}"
            yield Finding("initialisation.wrong_matrix", "warning", numbers, place=place)
            return


def sinusoids(patient: Patient) -> Iterator[Finding]:
    """A table of fixed numbers that begins with sin 0 and cos 0 must be a table of sinusoids."""
    tables = dict(_tables(patient))
    whole = [name for name, table in tables.items() if _is_cut_off(table)]
    sinusoids = {name: _rows(t) for name, t in tables.items() if _looks_sinusoidal(t)}
    if not whole and not sinusoids:
        raise NotApplicableError("no_sinusoids")
    for name in whole:
        yield Finding("sinusoids.whole", "warning", {"name": name})
    for name, table in sinusoids.items():
        pairs = [(table[:, 0::2], table[:, 1::2]), table.chunk(2, dim=1)]
        sums = [one.square() + other.square() for one, other in pairs]
        errors = [float((total - 1).abs().max()) for total in sums]
        best = errors.index(min(errors))
        if errors[best] > _PAIRED:
            low, high = float(sums[best].min()), float(sums[best].max())
            yield Finding("sinusoids.pairs", "warning", {"name": name, "low": low, "high": high})
            continue
        one, other = pairs[best]
        sines, cosines = (other, one) if one[0].any() else (one, other)
        angles = torch.atan2(sines[1], cosines[1])
        slowest = float(angles.abs().min())
        width = table.shape[1]
        base = (1 / max(slowest, 1e-300)) ** (width / (width - 2))
        if any(abs(math.log10(base / wrong)) < 0.3 for wrong in (_DOUBLED, _HALVED)):
            yield Finding("sinusoids.exponent", "warning", {"name": name, "base": base})


def _tables(patient: Patient) -> Iterator[tuple[str, Tensor]]:
    """Return matrices of fixed numbers, by name: frozen parameters, buffers, and tensors that
    modules keep, but no embedding table, mask or rotation."""
    model = patient.plain
    sizes = (patient.vocab_size, patient.source_vocab_size)
    tokens = [
        module.weight
        for module in model.modules()
        if isinstance(module, nn.Embedding) and module.num_embeddings in sizes
    ]
    frozen = [(n, p) for n, p in model.named_parameters() if not p.requires_grad]
    kept = [
        (f"{path}.{name}".strip("."), value)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, torch.Tensor)
    ]
    for name, tensor in [*frozen, *model.named_buffers(), *kept]:
        if tensor.is_complex() or any(tensor is table for table in tokens):
            continue
        table = tensor.detach().double()
        while table.dim() > 2 and 1 in table.shape:
            table = table.squeeze(table.shape.index(1))
        if table.dim() != 2 or min(table.shape) < 8 or table.shape[1] % 2:
            continue
        if not any(word in name.lower() for word in ("cos", "sin", "rot", "rope", "freq", "mask")):
            yield name, table


def _rows(table: Tensor) -> Tensor:
    """Return a table without rows of zeros, which belong to padding."""
    return table[(table != 0).any(dim=1)]


def _looks_sinusoidal(table: Tensor) -> bool:
    """Tell whether a table looks like sinusoids: it begins with sin 0 and cos 0, or with a padding
    row of zeros, and its values reach 1."""
    begins = bool(((table[0].abs() < 1e-6) | ((table[0] - 1).abs() < 1e-6)).all())
    whole = table.equal(table.round())
    return begins and not whole and 0.9 < float(table.abs().max()) <= 1.001


def _is_cut_off(table: Tensor) -> bool:
    """Tell whether a table holds sines and cosines that were converted to whole numbers: the first
    row, sin 0 and cos 0, is left, and almost nothing else."""
    zeros, ones = torch.zeros_like(table[0]), torch.ones_like(table[0])
    pairs = torch.arange(len(zeros), device=table.device)
    firsts = (
        torch.where(pairs % 2 == 1, ones, zeros),
        torch.where(pairs * 2 < len(ones), zeros, ones),
    )
    begins = any(table[0].equal(first) for first in firsts)
    rest = table[1:]
    return begins and rest.equal(rest.round()) and float((rest != 0).double().mean()) < 0.4
