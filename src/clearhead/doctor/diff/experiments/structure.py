"""Experiments for an operation that is missing, superfluous or of another kind, for a wrong tensor,
and for weights that are not the reference's."""

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from ..evidence import Cause, Evidence
from ..layouts import relative
from ..operations import Operation, SourceLine, root, shared_line

_ANOTHER = 1e-3
"""A tensor that differs by less is nearly the right one: it is not another tensor, but an earlier
number is wrong."""
_EPSILONS = (0.0, 1e-5, 1e-6, 1e-8, 1e-12)
_DRAWS = {"bernoulli", "bernoulli_", "native_dropout", "rand", "rand_like"}
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "GELU (erf)": F.gelu,
    "GELU (tanh)": lambda x: F.gelu(x, approximate="tanh"),
    "GELU (sigmoid)": lambda x: x * torch.sigmoid(1.702 * x),
    "SiLU": F.silu,
    "ReLU": F.relu,
    "square": torch.square,
    "ReLU²": lambda x: F.relu(x).square(),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "Mish": F.mish,
    "softplus": F.softplus,
    "ELU": F.elu,
    "leaky ReLU": F.leaky_relu,
    "exp": torch.exp,
    "identity": lambda x: x,
}


def _functions(
    epsilons: tuple[float, ...], caps: tuple[float, ...]
) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    yield from ACTIVATIONS.items()
    for cap in caps:
        yield f"softcap ({cap:g})", lambda x, cap=cap: cap * torch.tanh(x / cap)
    # Inside a GELU, where both are written as x · (1 + f(x)) / 2.
    yield "GELU (erf)", lambda x: torch.erf(x / math.sqrt(2))
    yield "GELU (tanh)", lambda x: torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    yield "softmax", lambda x: x.softmax(dim=-1)
    for eps in epsilons:
        yield "LayerNorm", lambda x, eps=eps: F.layer_norm(x, x.shape[-1:], eps=eps)
        yield "RMSNorm", lambda x, eps=eps: _rms(x, eps)
        yield "LayerNorm (n - 1)", lambda x, eps=eps: _unbiased(x, eps)
        yield "LayerNorm (std + eps)", lambda x, eps=eps: _outside(x, eps)


def _rms(x: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)


def _unbiased(x: Tensor, eps: float) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred / (x.var(dim=-1, keepdim=True) + eps).sqrt()


def _outside(x: Tensor, eps: float) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred / (x.std(dim=-1, keepdim=True) + eps)


def _named(
    x: Tensor, result: Tensor, evidence: Evidence, affine: tuple[Tensor, ...] = ()
) -> str | None:
    """Return the name of the function that turns x into the result, up to a weight and a bias of
    the last axis."""
    if x.shape != result.shape:
        return None
    numbers = [s for o in (*evidence.region, *evidence.their_region) for s in o.scalars]
    epsilons = tuple(dict.fromkeys([*(s for s in numbers if 0 < s < 1e-2), *_EPSILONS]))
    caps = tuple(dict.fromkeys(s for s in numbers if s > 1))
    for name, function in _functions(epsilons, caps):
        made = function(x)
        for candidate in _affine(made, affine) if "Norm" in name else (made,):
            if relative(candidate, result) <= max(evidence.bound, 1e-8):
                return name
    return None


def _affine(made: Tensor, vectors: tuple[Tensor, ...]) -> Iterator[Tensor]:
    yield made
    fitting = [v for v in vectors if v.dim() == 1 and len(v) == made.shape[-1]]
    for weight in fitting:
        for factor in (weight, 1 + weight):
            yield made * factor
            for bias in fitting:
                yield made * factor + bias


def _vectors(evidence: Evidence, operations: list[Operation], theirs: bool) -> tuple[Tensor, ...]:
    side = evidence.s.reference if theirs else evidence.s.port
    every = evidence.s.theirs if theirs else evidence.s.operations
    names = {every[i].label for o in operations for i in o.inputs if every[i].name == "parameter"}
    weights = [leaf.tensor.double() for leaf in side.leaves.values() if leaf.label in names]
    return tuple(tensor for tensor in weights if tensor.dim() == 1)


def another_function(evidence: Evidence) -> Cause | None:
    """Test whether the two programs apply different functions to the same tensor."""
    if evidence.cut.kind != "replace":
        return None
    for entry in evidence.entries:
        x = evidence.value(entry)
        if x.numel() != evidence.own.numel():
            continue
        x = x.reshape(evidence.own.shape)
        if evidence.is_wanted(x) and _is_random(evidence):
            return Cause("superfluous_function", {"name": "dropout"})
        reference = _named(
            x, evidence.wanted, evidence, _vectors(evidence, evidence.their_region, True)
        )
        port = _named(x, evidence.own, evidence, _vectors(evidence, evidence.region, False))
        # A norm where the port computes nothing known is another structure, not another function.
        is_plain = reference is not None and (port is not None or "Norm" not in reference)
        if reference is not None and reference != port and is_plain:
            return Cause(_kind_of(reference, port), {"port": port or "?", "reference": reference})
    return None


def _kind_of(reference: str, port: str | None) -> str:
    if "Norm" in reference and "Norm" in (port or ""):
        return "another_norm"
    return "function"


def missing_operation(evidence: Evidence) -> Cause | None:
    """Name the operation of the reference that the port lacks. The cut has shown that the two agree
    with it. An operation that is missing at the output is found too, although nothing reads it."""
    cut, s = evidence.cut, evidence.s
    is_last = cut.kind == "replace" and cut.index == s.root(s.matching.port.output or 0)
    if cut.kind != "insert" and not is_last:
        return None
    return _between(evidence, evidence.own, evidence.wanted, "missing", evidence.their_region, True)


def superfluous_operation(evidence: Evidence) -> Cause | None:
    """Name the operation of the port that the reference lacks. The cut has shown that the two agree
    without it."""
    if evidence.cut.kind != "bypass":
        return None
    if _is_random(evidence):
        return Cause("superfluous_function", {"name": "dropout"})
    if evidence.mine.name in ("add", "add_", "sub"):
        added = term_left_out(evidence) or _own_term(evidence)
        if added is not None:
            return added
    return _between(evidence, evidence.wanted, evidence.own, "superfluous", evidence.region, False)


def _is_random(evidence: Evidence) -> bool:
    """Tell whether the port alone draws numbers here, as dropout does."""
    ours, theirs = ({o.name for o in r} for r in (evidence.region, evidence.their_region))
    return bool(_DRAWS & ours) and not _DRAWS & theirs


def _own_term(evidence: Evidence) -> Cause | None:
    """Name the superfluous operand of a sum or difference whose other operand alone is right."""
    operations, kept = evidence.s.operations, evidence.s.root(evidence.cut.source)
    others = [i for i in evidence.mine.inputs if evidence.s.root(i) != kept]
    if len(others) != 1 or len(evidence.mine.inputs) != 2:
        return None
    return _of_term("superfluous", operations[evidence.s.root(others[0])])


def _between(
    evidence: Evidence,
    before: Tensor,
    after: Tensor,
    change: str,
    operations: list[Operation],
    theirs: bool,
) -> Cause | None:
    width = evidence.theirs.shape[-1] if evidence.theirs.shape else 1
    if before.shape != after.shape or not before.dim():
        return None
    whole = before.shape[-1]
    if 1 < width < whole and whole % width == 0:
        # Heads may still be beside each other where the port lacks what is done to each of them.
        of_heads = [t.unflatten(-1, (-1, width)) for t in (before, after)]
        cause = _of_rows(evidence, of_heads[0], of_heads[1], change, operations, theirs)
        if cause is not None:
            return cause
    return _of_rows(evidence, before, after, change, operations, theirs)


def _of_rows(
    evidence: Evidence,
    before: Tensor,
    after: Tensor,
    change: str,
    operations: list[Operation],
    theirs: bool,
) -> Cause | None:
    """Name the change that was made to each row."""
    ratio = _factor(before, after)
    if ratio is not None:
        return Cause(f"{change}_factor", {"factor": ratio})
    name = _named(before, after, evidence, _vectors(evidence, operations, theirs))
    if name is not None and name != "identity":
        return Cause(f"{change}_norm" if "Norm" in name else f"{change}_function", {"name": name})
    term = after - before
    if not bool(torch.isfinite(term).all()):
        return None
    for vector in _vectors(evidence, operations, theirs):
        if _is_close(term, vector.expand_as(term) if term.shape[-1] == len(vector) else term + 1):
            return Cause(f"{change}_bias", {})
    added = evidence.common_tensor(term)
    if added is not None:
        return _of_term(change, added)
    if _rotates(before, after):
        return Cause(f"{change}_rotation", {})
    return None


def _of_term(change: str, added: Operation) -> Cause:
    """Name a term: a residual depends on the tokens; a bias is a vector."""
    kind = "residual" if added.from_tokens else "term"
    if not added.from_tokens and len(added.shape) == 1:
        kind = "bias"
    line = "" if added.line is None else str(added.line)
    return Cause(f"{change}_{kind}", {"line": line, "label": added.label})


def _factor(before: Tensor, after: Tensor) -> float | None:
    finite = bool(torch.isfinite(before).all() and torch.isfinite(after).all())
    if before.shape != after.shape or not finite or not float(before.square().sum()):
        return None
    ratio = float((before * after).sum() / before.square().sum())
    return ratio if ratio and _is_close(before * ratio, after) else None


def _is_close(one: Tensor, other: Tensor) -> bool:
    return relative(one, other) <= 1e-7


def _rotates(before: Tensor, after: Tensor) -> bool:
    """Tell whether one tensor is a rotation of the other: halves or pairs of an axis keep their
    length, and single elements change their size. In keys, the axis may be the second to last."""
    if before.shape != after.shape or _is_close(before.abs(), after.abs()):
        return False
    for axis in range(-1, -min(before.dim(), 2) - 1, -1):
        if before.shape[axis] % 2 or before.shape[axis] < 4:
            continue
        one, other = (t.movedim(axis, -1) for t in (before, after))
        for split in (lambda t: t.unflatten(-1, (2, -1)), lambda t: t.unflatten(-1, (-1, 2)).mT):
            if _is_close(*(split(t).square().sum(dim=-2) for t in (one, other))):
                return True
    return False


def another_tensor(evidence: Evidence) -> Cause | None:
    """Report an operation that reads a tensor other than the one that the reference's operation
    reads. The cut has shown that the two agree with the reference's tensor."""
    if evidence.cut.kind != "operand":
        return None
    source = evidence.s.operations[evidence.s.root(evidence.cut.source)]
    wanted = root(evidence.s.theirs, evidence.cut.reference)
    if not source.from_tokens and not source.is_leaf:
        return None
    if evidence.difference < _ANOTHER:
        return None
    if source.from_tokens and not evidence.s.matching.is_used(wanted):
        missing = _between(
            evidence, evidence.own, evidence.wanted, "missing", evidence.their_region, True
        )
        if missing is not None:
            return missing
    equal = evidence.s.matching.of_reference.get(wanted)
    if equal is None or evidence.mine.index in evidence.makers(equal.index):
        return None  # the port does not have the right tensor: it computes something else
    ours = evidence.s.operations
    facts = {"port": _name(ours, source.index), "reference": _name(ours, equal.index)}
    partner = ours[evidence.s.root(equal.index)]
    line: SourceLine | None = None
    if source.selects and partner.line == source.line and partner.inputs == source.inputs:
        line = source.line  # parts of one tensor whose names are mixed up: the line that names them
    elif source.from_tokens and not partner.is_leaf:
        # The wrong one was taken where either is at hand: in the innermost call of these.
        lines = [shared_line(evidence.mine, [made]) for made in (source, partner)]
        line = min(filter(None, lines), key=evidence.mine.lines.index, default=None)
    return Cause("tensor", facts, () if line is None else (line,))


def _name(operations: list[Operation], index: int) -> str:
    """Name a leaf by its own name, and a result by its line and by the parameter that made it."""
    operation = operations[root(operations, index)]
    if operation.label:
        return operation.label
    made = [operations[root(operations, i)] for i in operation.inputs]
    weight = next((f" ({o.label})" for o in made if o.name == "parameter"), "")
    return (str(operation.line) if operation.line is not None else operation.name) + weight


def other_weights(evidence: Evidence) -> Cause | None:
    """Report a parameter that does not have the reference's values, or that is read in place of the
    right one, which the port has as well."""
    at = evidence.s.operations[evidence.s.root(evidence.at)]
    wanted = root(evidence.s.theirs, evidence.cut.reference)
    theirs = evidence.s.theirs[wanted]
    if at.name != "parameter" or evidence.cut.kind == "order" or theirs.name != "parameter":
        return None
    # The port may have it and read it nowhere.
    held = (leaf for leaf in evidence.s.port.leaves.values() if leaf.kind == "parameter")
    same = next((leaf for leaf in held if leaf.fingerprint == theirs.fingerprint), None)
    if same is not None and at.index in evidence.s.matching.of_port:
        return Cause("tensor", {"port": at.label, "reference": same.label})
    return Cause("weights", {"port": at.label, "reference": theirs.label})


def term_left_out(evidence: Evidence) -> Cause | None:
    """Test whether the two results differ by a tensor that both programs have, such as a residual
    that only one of them adds."""
    if evidence.cut.kind not in ("replace", "bypass"):
        return None
    own, wanted = evidence.own, evidence.wanted
    if not bool((own.abs() < 1e8).all() and (wanted.abs() < 1e8).all()):
        return None
    for kind, term in (("missing", wanted - own), ("superfluous", own - wanted)):
        added = evidence.common_tensor(term)
        if added is not None:
            return _of_term(kind, added)
    return None
