"""Checks positions that act inside attention: rotations, and biases by distance."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType

import torch
from torch import Tensor, nn

from ..attention_trace import Attention, trace_attention
from ..calls import CallInputs
from ..findings import Finding, NotApplicableError, Severity
from ..patient import Patient, change_size
from ..witness import axis_of, watch

# Some models compute their rotation in single precision always; a wrong one is off by the whole.
_TOLERANCE = 1e-3
_ROUNDING = 1e-6
# Names that promise that only distances count.
_PROMISES = ("rotary", "rotate", "rope", "alibi", "relative")


@dataclass(frozen=True)
class Distances:
    """How the scores of one attention, for a repeated token, depend on the positions of the
    keys."""

    place: str
    spread: float
    """The spread of the scores, after subtracting from each the score of the query's own
    position."""
    change: float
    """The largest difference between the scores of two queries at one distance."""
    values_turned: bool
    lines: Tensor | None
    """(head, key): the scores of the last query, if they are straight lines, as with ALiBi. The
    furthest key comes first. The last key is the query's own, whose score here is 0."""
    lines_are_fixed: bool
    """True if the lines begin above 0 and their slopes are not learnt."""


def relative(patient: Patient) -> Iterator[Finding]:
    """The check repeats one token. If every position then gives the same output, positions are not
    in the stream, and what attention knows about them must be distances.

    Two queries of such a sequence differ only in their positions, so the scores of all keys at one
    distance are equal (up to a number per query, which a softmax ignores).
    """
    if patient.length < 5:
        raise NotApplicableError("too_short")
    if patient.pooled:
        raise NotApplicableError("pooled")
    drawn = patient.draw(2)
    drawn.tokens[1] = patient.other_tokens(drawn.tokens[0])
    source = None if drawn.source is None else _repeated(drawn.source)
    inputs = CallInputs(_repeated(drawn.tokens), source)
    logits, seen = _traced(patient, patient.specimen, inputs)
    if not seen:
        raise NotApplicableError("no_attention_seen")
    one, other = logits.split(1)
    by_place = change_size(one, one[:, :1].expand_as(one))
    # Beside what another token would change: some models hardly hear anything.
    if not by_place <= _TOLERANCE * change_size(one, other):
        if _turned(seen[0].values) and _enters_alike(patient, inputs, seen[0]):
            yield Finding("relative.values", "error", place=seen[0].place)
            return
        raise NotApplicableError("absolute_positions")
    for distances in _distances(patient, inputs, seen):
        finding = _judged(distances, promised=_promised(patient.model))
        if finding is not None:
            yield finding
            return


def _judged(distances: Distances, *, promised: bool) -> Finding | None:
    if distances.change > _TOLERANCE * distances.spread:
        numbers = {"change": distances.change, "spread": distances.spread}
        severity: Severity = "warning" if promised else "note"
        return Finding("relative.places", severity, numbers, place=distances.place)
    if distances.values_turned:
        return Finding("relative.values", "error", place=distances.place)
    lines = distances.lines
    if lines is None:
        return None
    heads = {"heads": len(lines)}
    if distances.lines_are_fixed:
        return Finding("relative.wrong_sign", "warning", heads, place=distances.place)
    if len(lines) > 1 and (lines - lines[0]).abs().max() <= _ROUNDING * lines.abs().max():
        return Finding("relative.one_slope", "warning", heads, place=distances.place)
    return None


def _distances(patient: Patient, inputs: CallInputs, seen: list[Attention]) -> Iterator[Distances]:
    """Return the distances of each attention in which positions matter at all."""
    for index, attention in enumerate(seen):
        if attention.axis != -1 or attention.weights.dim() != 4:
            continue
        open_ = attention.weights > 0
        distances = _by_distance(attention.scores.double())
        spread = float(distances[open_].std())
        # Some models compute scores in single precision always.
        if not spread > _ROUNDING * max(float(attention.scores[open_].abs().max()), 1e-3):
            continue
        both = open_[..., 1:, 1:] & open_[..., :-1, :-1]
        lines = _lines(attention)
        rising = lines is not None and bool((lines[:, 0] > 0).all())
        yield Distances(
            place=attention.place,
            spread=spread,
            change=float((distances[..., 1:, 1:] - distances[..., :-1, :-1])[both].abs().max()),
            values_turned=_turned(attention.values),
            lines=lines,
            lines_are_fixed=rising and lines is not None and _fixed(patient, inputs, index, lines),
        )


def _traced(
    patient: Patient, model: nn.Module, inputs: CallInputs
) -> tuple[Tensor, list[Attention]]:
    """Return the logits, and every self-attention."""
    length, n_source = patient.length, patient.source_length if patient.has_source else 0
    logits: list[Tensor] = []
    seen = trace_attention(
        model,
        lambda: logits.append(patient.logits(model, inputs)),
        {(length, length), (n_source, n_source)},
    )
    return logits[0], seen


def _lines(attention: Attention) -> Tensor | None:
    """Return (head, key): the scores of the last query, if each head's scores are a straight line
    and the same for all tokens, as with ALiBi."""
    last = _by_distance(attention.scores.double())[..., -1, :]
    if not (attention.weights[..., -1, :] > 0).all():
        return None
    rounding = _ROUNDING * last.abs().max()
    straight = last.diff().diff().abs().max() <= rounding
    alike = (last - last[:1]).abs().max() <= rounding
    return last[0] if straight and alike else None


def _fixed(patient: Patient, inputs: CallInputs, index: int, lines: Tensor) -> bool:
    """Tell whether weights without noise give the same lines; then the slopes are not learnt."""
    _, seen = _traced(patient, patient.plain, inputs)
    plain = _by_distance(seen[index].scores.double())[0, :, -1, :]
    return bool(torch.allclose(plain, lines, rtol=1e-3, atol=1e-3 * float(lines.abs().max())))


def _enters_alike(patient: Patient, inputs: CallInputs, attention: Attention) -> bool:
    """Tell whether a repeated token enters the module of this attention alike at each position.
    After a recurrent layer, or with positions in the stream, it does not. The module is the
    innermost one with weights: the one that multiplies queries and keys may have none."""
    model, n_queries = patient.specimen, attention.scores.shape[-2]
    with torch.no_grad():
        visits = {v.path: v for v in watch(model, lambda: patient.logits(model, inputs))}
    path = attention.place
    while path:
        visit = visits.get(path)
        if visit is not None and next(visit.module.parameters(), None) is not None:
            streams = [t for t in visit.given if t.dim() == 3]
            axis = axis_of(streams[0], n_queries) if streams else None
            if axis is not None:
                stream = streams[0].movedim(axis, 0)
                return change_size(stream, stream[:1].expand_as(stream)) <= _TOLERANCE
        path = path.rpartition(".")[0]
    return False


def _repeated(tokens: Tensor) -> Tensor:
    return tokens[:, :1].expand_as(tokens).contiguous()


def _by_distance(scores: Tensor) -> Tensor:
    """Return the scores by distance, minus each query's score for its own position."""
    own = scores.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
    return scores - own


def _turned(values: Tensor | None) -> bool:
    """Tell whether the values of a repeated token are rotated. Without a rotation they are the same
    everywhere except at the first positions, where a short convolution has less to read. A rotation
    changes the value but not its length."""
    if values is None or values.dim() != 3:
        return False
    values = values[:, values.shape[1] // 2 :]
    lengths = values.norm(dim=-1)
    rotated = change_size(lengths, lengths[:, :1].expand_as(lengths)) <= _TOLERANCE
    return rotated and change_size(values, values[:, :1].expand_as(values)) > _TOLERANCE


def _promised(model: nn.Module) -> bool:
    """Tell whether the model uses such positions, by the names of its parts or of what their code
    calls."""
    for path, module in model.named_modules():
        names = [path, *(name for name, _ in module.named_buffers(recurse=False))]
        for kind in type(module).__mro__:
            if kind is nn.Module:
                break
            names += [kind.__name__, *vars(kind)]
            functions = [value for value in vars(kind).values() if isinstance(value, FunctionType)]
            names += [name for function in functions for name in function.__code__.co_names]
        if any(promise in name.lower() for name in names for promise in _PROMISES):
            return True
    return False
