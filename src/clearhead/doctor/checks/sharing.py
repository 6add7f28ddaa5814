"""Finds weights that are one tensor and should be separate, and weights that should be one tensor
and are separate."""

from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ..blocks import is_norm
from ..findings import Finding, NotApplicableError
from ..patient import Patient
from ..witness import Visit, watch


def tied(patient: Patient) -> Iterator[Finding]:
    """Vocabulary tables that hold the same numbers must be one tensor."""
    tables = [
        (name, parameter)
        for name, parameter in patient.model.named_parameters()
        if parameter.dim() == 2 and parameter.shape[0] == patient.vocab_size
    ]
    if not tables:
        raise NotApplicableError("no_table")
    for index, (name, one) in enumerate(tables):
        for other_name, other in tables[index + 1 :]:
            # Constant tables are alike without anybody's doing.
            if one.shape == other.shape and torch.equal(one, other) and one.std() > 0:
                numbers = {"one": name, "other": other_name}
                origin = "memory" if one.data_ptr() == other.data_ptr() else None
                yield Finding("tied.copied", "warning", numbers, name, origin=origin)


def shared(patient: Patient) -> Iterator[Finding]:
    """A list of layers must not hold one layer many times, and a layer must not use one norm
    twice."""
    for path, module in patient.model.named_modules():
        if not isinstance(module, nn.ModuleList | nn.Sequential):
            continue
        children = [child for child in module if child is not None]  # a list may hold None
        counts = Counter(id(child) for child in children if list(child.parameters()))
        repeated = max(counts.values(), default=0)
        if repeated > 1:
            # Not an error: ALBERT shares its layers on purpose.
            yield Finding("shared.layers", "warning", {"n": repeated}, place=path)
            return
    model = patient.plain
    with torch.no_grad():
        visits = watch(model, lambda: patient.logits(model, patient.draw(2)))
    calls = Counter(visit.path for visit in visits)
    # The same numbers twice (as query and as key) are one use.
    norms: dict[str, list[Tensor]] = {}
    readers: dict[str, set[str | None]] = {}  # what runs next after a norm
    for index, visit in enumerate(visits):
        given = norms.setdefault(visit.path, [])
        if visit.given and not any(torch.equal(visit.given[0], other) for other in given):
            given.append(visit.given[0])
            readers.setdefault(visit.path, set()).add(_next_with_weights(visits[index + 1 :]))
    lists = {p for p, m in model.named_modules() if isinstance(m, nn.ModuleList | nn.Sequential)}
    for path, module in model.named_modules():
        weighted = is_norm(module) and list(module.parameters(recurse=False))
        # One sublayer that serves two streams has one norm.
        if len(readers.get(path, ())) < 2:
            continue
        # Twice as often as the layer around it: one norm for two sublayers.
        around = [path.rpartition(".")[0], *_members(path, lists)]
        if weighted and any(
            0 < calls[other] < len(norms.get(path, [])) for other in around if other
        ):
            yield Finding("shared.norm", "warning", {"n": calls[path]}, place=path)
            return


def _next_with_weights(visits: list[Visit]) -> str | None:
    weighted = (v for v in visits if next(v.module.parameters(recurse=False), None) is not None)
    return next((visit.path for visit in weighted), None)


def _members(path: str, lists: set[str]) -> list[str]:
    """Return the layers around a module: the members of a list of layers that contain it."""
    parts = path.split(".")
    outer = [".".join(parts[:n]) for n in range(1, len(parts))]
    return [other for other in outer if other.rpartition(".")[0] in lists]
