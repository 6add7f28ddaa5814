"""An experiment for a matrix of the port that holds the wrong rows of the reference's matrices."""

import torch
from torch import Tensor

from ..evidence import Cause, Evidence
from ..operations import root

_SAME = 1e-8


def other_rows(evidence: Evidence) -> Cause | None:
    """Test whether the port's matrix holds other rows, or rows in another order. Then each column
    of the reference's value is a row of one of the reference's matrices, times the input of the
    port's matrix."""
    product = next((o for o in evidence.region if o.name in ("mm", "bmm", "addmm")), None)
    if evidence.cut.kind != "replace" or product is None:
        return None
    operations = evidence.s.operations
    sources = [operations[root(operations, i)] for i in product.inputs]
    held = next((o for o in sources if o.name == "parameter"), None)
    read = next((i for i, o in zip(product.inputs, sources) if o.name != "parameter"), None)
    if held is None or read is None:
        return None
    x = evidence.value(read)
    x = x.reshape(-1, x.shape[-1])
    if evidence.wanted.numel() % len(x):
        return None
    wanted = evidence.wanted.reshape(len(x), -1)
    for weight, bias in _matrices(evidence, x.shape[-1]):
        tensor = evidence.s.reference.leaves[weight].tensor.to(torch.float64)
        tensor = tensor.t() if tensor.shape[-1] != x.shape[-1] else tensor
        made = x @ tensor.t()
        added = None if bias is None else evidence.s.reference.leaves[bias].tensor
        adds = any(o.name in ("add", "add_", "addmm") for o in evidence.region)
        if added is not None and added.shape == made.shape[-1:] and adds:
            made = made + added.to(torch.float64)
        if _are_columns(wanted, made):
            label = evidence.s.reference.leaves[weight].label
            return Cause("weight_order", {"port": held.label, "reference": label})
    return None


def _matrices(evidence: Evidence, n_in: int) -> list[tuple[int, int | None]]:
    """Return the reference's matrices with `n_in` inputs, and their biases."""
    leaves = evidence.s.reference.leaves
    by_label = {leaf.label: key for key, leaf in leaves.items() if leaf.kind == "parameter"}
    found: list[tuple[int, int | None]] = []
    read = {
        evidence.s.theirs[root(evidence.s.theirs, i)].label
        for o in evidence.their_region
        for i in o.inputs
    }
    for label in sorted(read & by_label.keys()):
        if (
            leaves[by_label[label]].tensor.dim() == 2
            and n_in in leaves[by_label[label]].tensor.shape
        ):
            found.append((by_label[label], by_label.get(label.replace("weight", "bias"))))
    return found


def _are_columns(wanted: Tensor, made: Tensor) -> bool:
    """Tell whether every column of `wanted` is a column of `made`, by products with random
    numbers."""
    generator = torch.Generator().manual_seed(0)
    probe = torch.randn(len(made), generator=generator, dtype=torch.float64)
    ours, theirs = probe @ wanted, probe @ made
    ordered = theirs.sort().values
    right = torch.searchsorted(ordered, ours).clamp(max=len(ordered) - 1)
    left = (right - 1).clamp(min=0)
    apart = torch.minimum((ordered[left] - ours).abs(), (ordered[right] - ours).abs())
    return float(apart.max()) <= _SAME * max(float(theirs.abs().max()), 1e-30)
