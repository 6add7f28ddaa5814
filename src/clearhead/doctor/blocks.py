"""Finds the layers of a tower in any model: equal modules in a list, called one after another with
a stream that keeps its shape."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .patient import Patient, once_per_patient
from .witness import Visit, watch


@dataclass(frozen=True)
class Tower:
    """A list of layers through which one stream of vectors passes."""

    path: str
    """The path of the list that holds the layers."""
    layers: tuple[str, ...]
    length: int
    """The length of the sequence that the layers process."""
    width: int
    """The width of the vectors in its stream."""
    length_first: bool = False
    """True if the stream is (length, batch, width)."""

    def into(self, visit: Visit) -> Tensor:
        """Return the vectors that a layer was given, as (batch, length, width)."""
        stream = stream_into(visit)
        return stream.transpose(0, 1) if self.length_first else stream


@once_per_patient
def find_towers(patient: Patient) -> list[Tower]:
    """Find the stacks of layers of a model by running it once."""
    model, inputs = patient.plain, patient.draw(patient.rows(3))
    with torch.no_grad():
        visits = watch(model, lambda: patient.logits(model, inputs))
    streams = {visit.path: visit for visit in visits if _keeps_its_shape(visit)}
    towers: list[Tower] = []
    for path, module in model.named_modules():
        if not isinstance(module, nn.ModuleList | nn.Sequential) or not list(module.children()):
            continue
        if any(f"{path}.".startswith(f"{layer}.") for tower in towers for layer in tower.layers):
            continue
        layers = tuple(f"{path}.{name}" for name, _ in module.named_children())
        children = list(module.children())
        alike = len({type(child) for child in children}) == 1
        if alike and all(layer in streams for layer in layers) and _is_layer(children[0]):
            one, other, width = stream_into(streams[layers[0]]).shape
            length_first = other == len(inputs.tokens) != one
            length = one if length_first else other
            towers.append(Tower(path, layers, length, width, length_first))
    return towers


def stream_into(visit: Visit) -> Tensor:
    """Return the vectors that a layer was given."""
    return visit.given[0]


def stream_out_of(visit: Visit) -> Tensor:
    """Return the vectors that a layer returned, with the shape of its input."""
    return next(t for t in visit.returned if t.shape == visit.given[0].shape)


def is_vector(parameter: Tensor) -> bool:
    """Tell whether a parameter has at most one axis, apart from axes of size 1."""
    return parameter.numel() == max(parameter.shape, default=1)


def is_norm(module: nn.Module) -> bool:
    """Tell whether a module is a norm: by its name, or because it has no matrix and its output does
    not depend on the scale of its input."""
    weights = list(module.parameters())
    if "norm" in type(module).__name__.lower():
        # A layer with normalised weights, or a wrapper that holds a sublayer, is none.
        return isinstance(module, nn.LayerNorm) or all(map(is_vector, weights))
    if not weights or any(parameter.dim() != 1 for parameter in weights):
        return False
    training = module.training
    try:
        with torch.no_grad():
            given = torch.linspace(-2, 3, 6 * weights[0].numel(), dtype=weights[0].dtype).sin()
            given = given.view(2, 3, -1).to(weights[0].device)
            one, other = module.eval()(given), module(given * 4)
    except Exception:  # it takes something else
        return False
    finally:
        module.train(training)
    if not isinstance(one, torch.Tensor) or one.shape != given.shape:
        return False
    return bool(torch.allclose(one, other, rtol=1e-2, atol=1e-3) and (one - one[0, 0]).any())


def _keeps_its_shape(visit: Visit) -> bool:
    stream = visit.given[0] if visit.given else None
    if stream is None or stream.dim() != 3:
        return False
    return any(t.shape == stream.shape for t in visit.returned)


def _is_layer(module: nn.Module) -> bool:
    """Tell whether a module is a layer: it has more than one matrix, unlike the activation or the
    single Linear of a small Sequential."""
    return sum(parameter.dim() > 1 for parameter in module.parameters()) > 1
