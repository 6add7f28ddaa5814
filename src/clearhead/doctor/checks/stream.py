"""Checks the residual stream: what is added to it, and how large that is."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from ..blocks import (
    Tower,
    find_towers,
    is_norm,
    is_vector,
    stream_into,
    stream_out_of,
)
from ..calls import CallInputs
from ..findings import Finding, NotApplicableError
from ..patient import Patient, change_size
from ..witness import Visit, differs, tensors, watch, watching

# The token's share at which it is drowned: an unscaled N(0, 0.02) table beside sinusoids has
# 0.028, the same table scaled by √d_model has 0.057 even at a width of 4.
_DROWNED = 0.04
# Tokens that go in as their table has them: a table of N(0, 1/d_model) without its scale has 0.18
# at a width of 64; learned positions beside learned tokens have 1.
_DROWNED_UNSCALED = 0.22
# A norm feels size only through its epsilon; without one, logits grow as the stream does.
_LARGER, _SIZE_FELT = 4, 0.1
# So large that neither a norm's epsilon nor a position that is added counts beside it.
_FAR = 1e3


@dataclass(frozen=True)
class _Emptied:
    """A copy with nothing in its sublayers, and two runs of it with different tokens."""

    model: nn.Module
    visits: list[Visit]
    changed: list[Visit]


def residual(patient: Patient) -> Iterator[Finding]:
    """If its sublayers return zeros, a layer is the identity, or a norm that comes last."""
    towers = find_towers(patient)
    if not towers:
        raise NotApplicableError("no_layers")
    emptied = _empty(patient, towers)
    for tower in towers:
        findings = list(_examine_tower(patient, tower, emptied))
        if findings:
            # With gains of 1 a residual may be replaced, or added twice: asked again without them.
            again = _examine_tower(patient, tower, _empty(patient, towers, own_gains=True))
            cases = {finding.case for finding in again}
            findings = [finding for finding in findings if finding.case in cases]
        yield from findings or _final_norm(patient, tower, emptied.visits)
        last = next(visit for visit in emptied.visits if visit.path == tower.layers[-1])
        if stream_out_of(last).any():  # not a sublayer, whose residual is outside
            yield from _skips(patient, tower)


def _empty(patient: Patient, towers: list[Tower], *, own_gains: bool = False) -> _Emptied:
    model, inputs = patient.copy(), patient.draw(3)
    for tower in towers:
        for layer in tower.layers:
            _silence(model.get_submodule(layer), own_gains)
    others = replace(inputs, tokens=patient.other_tokens(inputs.tokens))
    if inputs.source is not None:
        others = replace(others, source=patient.other_tokens(inputs.source))
    with torch.no_grad():
        visits = watch(model, lambda: patient.logits(model, inputs))
        changed = watch(model, lambda: patient.logits(model, others))
    return _Emptied(model, visits, changed)


def _examine_tower(patient: Patient, tower: Tower, emptied: _Emptied) -> Iterator[Finding]:
    visits, changed = emptied.visits, emptied.changed
    # Counted in each run: a model may change its parts after its first.
    last, again = (
        max(i for i, visit in enumerate(run) if visit.path == tower.layers[-1])
        for run in (visits, changed)
    )
    # What is read of a model with several streams need not be the one that carries the tokens.
    carried = differs(stream_out_of(visits[last]), stream_out_of(changed[again]), 1e-6)
    if not carried and not _stream_goes_on(tower, visits[last + 1 :], changed[again + 1 :]):
        yield Finding("residual.none", "error", place=tower.layers[0])
        return
    for layer in tower.layers:
        end = next(i for i, visit in enumerate(visits) if visit.path == layer)
        given, returned = stream_into(visits[end]), stream_out_of(visits[end])
        if _same(returned, given) or not returned.any():
            continue  # the identity; or a sublayer, whose residual is outside
        inside = [v for v in visits[:end] if v.path.startswith(f"{layer}.") and _weighs(v.module)]
        if inside and is_norm(inside[-1].module):
            continue  # post-norm: a norm comes last
        if not any(is_norm(visit.module) for visit in inside) and _is_normalised(returned):
            continue  # a norm that is no module of the layer: nobody knows where it stands
        if layer == tower.layers[0] and _only_the_first_normalises(patient, tower, emptied.model):
            continue
        if _grows(patient, emptied.model, layer):
            continue  # a factor, a gate, or a position that is added
        change = float((returned - given).norm() / given.norm())
        yield Finding("residual.after_norm", "error", {"change": change}, place=layer)
        return


def _only_the_first_normalises(patient: Patient, tower: Tower, model: nn.Module) -> bool:
    """Tell whether only the first layer normalises the stream, as in RWKV, whose first layer begins
    with the norm of the embeddings. After it, vectors that are larger than what norms return pass
    the other layers unchanged."""
    first, *others = tower.layers
    with torch.no_grad(), watching(model, leave=_enlarging(first)):
        visits = watch(model, lambda: patient.logits(model, patient.draw(3)))
    later = [visit for visit in visits if visit.path in others]
    return bool(later) and all(_same(stream_out_of(v), stream_into(v)) for v in later)


def _grows(patient: Patient, model: nn.Module, layer: str) -> bool:
    """Tell whether the emptied layer returns more if it gets more; then no norm stands in the
    stream."""
    sizes: list[float] = []
    for factor in (_FAR, _LARGER * _FAR):
        with torch.no_grad(), watching(model, give=_multiplying(layer, factor)):
            visits = watch(model, lambda: patient.logits(model, patient.draw(3)))
        visit = next(visit for visit in visits if visit.path == layer)
        sizes.append(float(stream_out_of(visit).double().norm()))
    return sizes[1] > _LARGER / 2 * sizes[0]


def _multiplying(layer: str, factor: float) -> Callable[[str, Any, Any], tuple[Any, Any]]:
    """Return a function for `watching` that multiplies the stream that this layer gets."""

    def give(path: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
        if path != layer:
            return args, kwargs
        if args and isinstance(args[0], torch.Tensor):
            return (args[0] * factor, *args[1:]), kwargs
        name = next((n for n, v in kwargs.items() if _is_stream(v)), None)
        return args, kwargs if name is None else {**kwargs, name: kwargs[name] * factor}

    return give


def _is_stream(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 3 and value.is_floating_point()


def _is_normalised(stream: Tensor) -> bool:
    sizes = stream.double().norm(dim=-1)
    return bool((sizes / sizes.mean() - 1).abs().max() < 0.05)


def _final_norm(patient: Patient, tower: Tower, visits: list[Visit]) -> Iterator[Finding]:
    """After layers that normalise their input but not their output, the stream has grown, so a
    final norm must follow. A norm ignores scale, so scaling the last layer's output must not
    change the logits."""
    calls = [visit for visit in visits if visit.path == tower.layers[-1]]
    last = calls[-1]
    inside = [v for v in visits if v.path.startswith(f"{last.path}.") and _weighs(v.module)]
    if not any(is_norm(visit.module) for visit in inside):
        return
    if is_norm(inside[-1].module) or not _same(stream_out_of(last), stream_into(last)):
        return
    model, inputs = patient.specimen, patient.draw(2)
    with torch.no_grad():
        before = patient.logits(model, inputs)
        # A layer may run again and again: only behind its last run the stream ends.
        with watching(model, leave=_enlarging(last.path, len(calls))):
            after = patient.logits(model, inputs)
    change = change_size(before, after)
    if change > _SIZE_FELT:
        numbers = {"change": change, "larger": _LARGER}
        yield Finding("residual.no_final_norm", "warning", numbers, place=tower.layers[-1])


def _enlarging(layer: str, call: int = 1) -> Callable[[str, nn.Module, Any, Any], Any]:
    """Return a function for `watching` that multiplies what this layer returns, from the given call
    on."""
    n_calls = count(1)

    def leave(path: str, _module: nn.Module, _given: Any, output: Any) -> Any:
        if path != layer or next(n_calls) < call:
            return None
        if isinstance(output, torch.Tensor):
            return output * _LARGER
        return type(output)((output[0] * _LARGER, *output[1:]))

    return leave


def _skips(patient: Patient, tower: Tower) -> Iterator[Finding]:
    """Without its feed-forward layers, a tower must still pass on what its attention read: the
    residual after them begins where attention ended."""
    model, inputs = patient.specimen, patient.draw(2)
    position = tower.length // 2
    others = inputs
    for role in ("tokens", "source"):
        tokens: Tensor | None = getattr(inputs, role)
        if tokens is not None and tokens.shape[1] > position:
            tokens = tokens.clone()
            tokens[:, position - 1] = patient.other_tokens(tokens[:, position - 1])
            others = replace(others, **{role: tokens})
    downs = _matrices_that_write(patient, tower)
    if len(downs) < len(tower.layers):
        return

    def stream(given: CallInputs, silent: set[str]) -> Tensor:
        seen: list[Tensor] = []

        def leave(path: str, _module: nn.Module, _given: Any, output: Any) -> Any:
            if path == tower.layers[-1]:
                stream = next(t for t in tensors(output) if t.dim() == 3)
                seen.append(stream.transpose(0, 1) if tower.length_first else stream)
            return torch.zeros_like(output) if path in silent else None

        with torch.no_grad(), watching(model, leave=leave):
            patient.logits(model, given)
        return seen[-1]

    def reads(silent: set[str]) -> bool:
        one, other = stream(inputs, silent), stream(others, silent)
        return differs(one[:, position:], other[:, position:], patient.tolerance)

    if reads(set()) and not reads(downs):
        yield Finding("residual.skips", "error", place=tower.layers[0])


def _matrices_that_write(patient: Patient, tower: Tower) -> set[str]:
    """The last matrix of each layer's feed-forward network, by its path. A layer has none if all
    its matrices are in one part of it (Mamba), or if only one of them writes into the stream (a
    gated attention)."""
    model = patient.specimen
    with torch.no_grad():
        visits = watch(model, lambda: patient.logits(model, patient.draw(2)))
    chosen = (_last_writing_matrix(model, layer, visits) for layer in tower.layers)
    return {path for path in chosen if path is not None}


def _last_writing_matrix(model: nn.Module, layer: str, visits: list[Visit]) -> str | None:
    inside = [visit for visit in visits if visit.path.startswith(f"{layer}.")]
    matrices = [visit for visit in inside if isinstance(visit.module, nn.Linear)]
    if not matrices:
        return None
    last = matrices[-1].module
    assert isinstance(last, nn.Linear)
    width = stream_into(next(visit for visit in visits if visit.path == layer)).shape[-1]
    # A router narrows too, and does not write into the stream.
    if not last.in_features > last.out_features == width:
        return None
    parameters = model.get_submodule(layer).named_parameters(prefix=layer)
    weights = [name for name, parameter in parameters if parameter.dim() > 1]
    part = matrices[-1].path.rpartition(".")[0]
    if part == layer:
        n_writing = sum(visit.returned[0].shape[-1] == width for visit in matrices)
        is_one_of_several = n_writing > 1 or any(
            name.count(".") > layer.count(".") + 2 for name in weights
        )
    else:
        is_one_of_several = any(not name.startswith(f"{part}.") for name in weights)
    return matrices[-1].path if is_one_of_several else None


def _weighs(module: nn.Module) -> bool:
    return next(module.parameters(recurse=False), None) is not None


def _stream_goes_on(tower: Tower, visits: list[Visit], changed: list[Visit]) -> bool:
    """Tell whether any of the input is still there after the last layer."""
    pairs = [
        (one, other)
        for visit, same in zip(visits, changed)
        for one, other in zip(visit.given, same.given)
        if one.dim() == 3 and tower.length in one.shape[:2]
    ]
    if not pairs:  # nothing but the model itself comes after: ask what it returns
        pairs = list(zip(visits[-1].returned[:1], changed[-1].returned[:1]))
    return any(differs(one, other, 1e-6) for one, other in pairs)


def _silence(layer: nn.Module, own_gains: bool) -> None:
    """Make sublayers add nothing, and norms only normalise. A gain between the sublayers may weigh
    the residual itself: it becomes 1, or stays unchanged with `own_gains`."""
    with torch.no_grad():
        for module in layer.modules():
            own = dict(module.named_parameters(recurse=False))
            vectors = {name for name, parameter in own.items() if is_vector(parameter)}
            between = next(module.children(), None) is not None and len(vectors) == len(own)
            norm = is_norm(module)
            for name, parameter in own.items():
                gain = name in vectors and "bias" not in name
                # Beside matrices, what begins at 1 is the gain of a norm that is no module.
                if not gain or not (norm or between or float(parameter.double().mean()) > 0.5):
                    parameter.zero_()
                elif norm or not own_gains:
                    parameter.fill_(1.0)


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-4, atol=1e-5)


def embedding_scale(patient: Patient) -> Iterator[Finding]:
    """What enters the first layer must vary with the token, not with the position alone."""
    towers = find_towers(patient)
    if not towers:
        raise NotApplicableError("no_layers")
    model = patient.plain
    n_tokens = min(16, patient.vocab_size)
    with torch.no_grad():
        same = _same_token_everywhere(patient, n_tokens)
        visits = watch(model, lambda: patient.logits(model, same))
    for tower in towers:
        first = next(visit for visit in visits if visit.path == tower.layers[0])
        stream = tower.into(first)
        token = float(stream.std(dim=0).square().mean().sqrt())
        # What all tokens have in common at a position: of sinusoids, slow ones count too.
        position = float(stream.mean(dim=0).square().mean().sqrt())
        limit = _DROWNED if _is_scaled(patient, visits, token) else _DROWNED_UNSCALED
        if token < limit * position:
            numbers = {"token": token, "position": position, "ratio": position / max(token, 1e-12)}
            yield Finding("embedding_scale.drowned", "warning", numbers, place=tower.path)


def _is_scaled(patient: Patient, visits: list[Visit], token: float) -> bool:
    """Tell whether tokens enter the first layer larger (or smaller) than their table has them."""
    sizes = [
        float(v.module.weight.double().std())
        for v in visits
        if isinstance(v.module, nn.Embedding)
        and v.module.num_embeddings in (patient.vocab_size, patient.source_vocab_size)
    ]
    return not any(0.8 < token / max(size, 1e-12) < 1.25 for size in sizes)


def _same_token_everywhere(patient: Patient, n_tokens: int) -> CallInputs:
    """Return tokens in which row r repeats a single token."""
    drawn = patient.draw(1, n_tokens, n_tokens if patient.has_source else None)
    tokens = drawn.tokens[0][:, None].expand(-1, patient.length).contiguous()
    if drawn.source is None:
        return CallInputs(tokens)
    return CallInputs(
        tokens, drawn.source[0][:, None].expand(-1, patient.source_length).contiguous()
    )
