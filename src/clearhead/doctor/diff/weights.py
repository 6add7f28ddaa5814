"""Finds by value where each parameter of the reference appears in the port, and which parameters do
not appear."""

import re
from collections import Counter
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from .weight_roles import WeightFinding, WeightMatch, swapped
from .weight_rows import RowIndex, RowMatch, as_matrix, describe_rows

_ENOUGH = 0.1
"""If a smaller share of the numbers is common, the two models count as having no common weights."""
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
"""Matches a part of a name that is a number: the number of a layer, not the 1 of `norm_1`."""


@dataclass
class CommonWeights:
    """The weights that both models have in common."""

    matches: list[WeightMatch] = field(default_factory=list)
    findings: list[WeightFinding] = field(default_factory=list)
    share: float = 0.0
    """The share of the reference's numbers that are in the port."""
    copyable: dict[str, str] = field(default_factory=dict)
    """If there are no common weights: for each weight of the port, the weight of the reference that
    belongs there, where the shapes alone determine it."""

    @property
    def common(self) -> bool:
        """Tell whether the two models can be compared at all."""
        return self.share >= _ENOUGH


def compare_weights(reference: nn.Module, port: nn.Module) -> CommonWeights:
    """Search for every parameter of the reference among the port's, by value."""
    theirs, ours = _tensors(reference), _tensors(port)
    index = RowIndex({name: t for name, t in ours.items() if not _is_constant(t)})
    found = CommonWeights()
    matched: dict[str, list[WeightMatch]] = {}
    for name, tensor in theirs.items():
        if not _is_constant(tensor):
            matched[name] = _matches(name, tensor, index)
    _add_biases(theirs, ours, matched)
    fixed = _fixed(reference)
    matched = {name: options for name, options in matched.items() if options or name not in fixed}
    templates = _templates(matched)
    found.matches = [
        _usual(name, options, templates) for name, options in matched.items() if options
    ]
    numbers = {name: theirs[name].numel() for name in matched}
    present = sum(numbers[match.reference] for match in found.matches)
    found.share = present / max(sum(numbers.values()), 1)
    if not found.common:
        found.copyable = by_shape(theirs, ours)
        return found
    taken = _taken(reference, found.matches, matched)
    untied = _untied(reference, ours, taken)
    known = {f.port for f in untied} | _buffers_of(reference, ours)
    loose = {name: t for name, t in ours.items() if name not in known}
    found.findings = [
        *_wrong_layout(found.matches, theirs),
        *swapped(found.matches),
        *_other_layer(found.matches, reference),
        *untied,
        *_left_over(theirs, loose, matched, templates, taken),
    ]
    return found


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in model.named_parameters() if p.numel()}


def _fixed(model: nn.Module) -> set[str]:
    """Return the names of parameters that are not learnt, if the model has others that are: tables
    of sinusoids, for example, which a port may compute."""
    learnt = {name: p.requires_grad for name, p in model.named_parameters()}
    return {name for name in learnt if not learnt[name]} if any(learnt.values()) else set()


def _buffers_of(reference: nn.Module, ours: dict[str, Tensor]) -> set[str]:
    """Return the names of the port's parameters that the reference has as buffers."""
    buffers = [b.flatten() for b in reference.buffers()]
    return {name for name, t in ours.items() if any(b.equal(t.flatten()) for b in buffers)}


def _is_constant(tensor: Tensor) -> bool:
    """Tell whether all values are equal. Ones and zeros are in every model, so they show
    nothing."""
    return bool((tensor == tensor.flatten()[0]).all())


def _matches(name: str, tensor: Tensor, index: RowIndex) -> list[WeightMatch]:
    found = [WeightMatch(name, m.name, *describe_rows(m)) for m in index.find(tensor)]
    if tensor.dim() == 2 and not found:  # its columns may stand in another order
        turned = (replace(m, transposed=not m.transposed) for m in index.find(tensor.t()))
        found = [WeightMatch(name, m.name, *describe_rows(m)) for m in turned]
    if found or tensor.dim() < 2:
        return found
    parts = index.parts(tensor)
    covered = {int(row) for part in parts for row in part.rows}
    if len(covered) == len(as_matrix(tensor)):
        return [_split(name, parts)]
    parts = index.parts(tensor.t()) if tensor.dim() == 2 else []
    covered = {int(row) for part in parts for row in part.rows}
    if tensor.dim() == 2 and len(covered) == tensor.shape[1]:
        return [_split(name, parts)]
    return found


def _split(name: str, parts: list[RowMatch]) -> WeightMatch:
    """Return the parts in the order in which they stand in the whole."""
    ordered = sorted(parts, key=lambda part: int(part.rows.min()))
    return WeightMatch(name, ", ".join(part.name for part in ordered), "split")


def _add_biases(
    theirs: dict[str, Tensor], ours: dict[str, Tensor], matched: dict[str, list[WeightMatch]]
) -> None:
    """Match biases by their weights: the bias of a part stands in the fused bias where the rows of
    its weight stand in the fused weight, whichever program has the fused matrix."""
    for name, options in matched.items():
        tensor = theirs[name]
        if options or tensor.dim() != 1:
            continue
        for other, vector in ours.items():
            rows = _where(tensor, vector)
            if rows is not None:
                options.append(WeightMatch(name, other, *describe_rows(rows)))
        if not options:
            inside = [o for o, vector in ours.items() if _where(vector, tensor) is not None]
            inside = [o for o in inside if not _is_constant(ours[o])]
            if sum(len(ours[o]) for o in inside) >= len(tensor):
                options.append(WeightMatch(name, ", ".join(inside), "split"))


def _where(part: Tensor, whole: Tensor) -> RowMatch | None:
    """Return the position of one vector's elements in another."""
    if part.dim() != 1 or whole.dim() != 1 or len(whole) < len(part) or len(part) < 2:
        return None
    ordered, places = whole.double().sort()
    best = torch.searchsorted(ordered, part.double()).clamp(max=len(whole) - 1)
    if not bool((ordered[best] == part.double()).all()):
        return None
    return RowMatch("", False, places[best], len(whole))


def _templates(matched: dict[str, list[WeightMatch]]) -> Counter[tuple[str, str]]:
    """Count how often a name of the reference goes with a name of the port, whatever the layer."""
    pairs: Counter[tuple[str, str]] = Counter()
    for name, options in matched.items():
        for option in options:
            pairs[_pattern(name), _pattern(option.port)] += 1
    return pairs


def _pattern(name: str) -> str:
    return _NUMBER.sub("#", name)


def _numbers(name: str) -> list[int]:
    return [int(number) for number in _NUMBER.findall(name)]


def _usual(
    name: str, options: list[WeightMatch], templates: Counter[tuple[str, str]]
) -> WeightMatch:
    """Choose among several places with the same values the place that other layers use too."""

    def rank(match: WeightMatch) -> tuple[bool, int, bool]:
        known = templates[_pattern(name), _pattern(match.port)]
        same_layer = _numbers(name)[:1] == _numbers(match.port)[:1]
        return (same_layer, known, match.how == "equal")

    return max(options, key=rank)


def _wrong_layout(matches: list[WeightMatch], theirs: dict[str, Tensor]) -> list[WeightFinding]:
    """Find a square matrix that is transposed, unlike the others, and rows in another order."""
    matrices = {m.reference for m in matches if theirs[m.reference].dim() == 2}
    squares = {name for name in matrices if theirs[name].shape[0] == theirs[name].shape[1]}
    # A matrix that is not square fits its place in one way only: these show what is usual.
    hows = Counter(
        m.how for m in matches if m.reference in matrices - squares and _numbers(m.reference)
    )
    usual = "transposed" if hows["transposed"] > hows["equal"] else "equal"
    found: list[WeightFinding] = []
    for match in matches:
        expected = usual if _numbers(match.reference) else "equal"
        is_plain = match.how in ("equal", "transposed")
        if match.reference in squares and is_plain and match.how != expected:
            found.append(WeightFinding("transposed", match.reference, match.port))
        elif match.how in ("heads", "rotary", "permuted", "reordered"):
            found.append(
                WeightFinding(
                    "permuted", match.reference, match.port, f"{match.how} {match.detail}".strip()
                )
            )
    return found


def _other_layer(matches: list[WeightMatch], reference: nn.Module) -> list[WeightFinding]:
    """Find layers that stand in the place of other layers. If a program merely numbers its layers
    from 1, only the names differ."""
    offsets: dict[tuple[str, str], list[tuple[int, WeightMatch]]] = {}
    for match in matches:
        one, other = _numbers(match.reference), _numbers(match.port)
        if one and other:
            key = (_pattern(match.reference), _pattern(match.port))
            offsets.setdefault(key, []).append((other[0] - one[0], match))
    in_all = Counter(_pattern(name) for name, _ in reference.named_parameters())
    found: list[WeightFinding] = []
    for (pattern, _), pairs in offsets.items():
        every = {offset for offset, _ in pairs}
        whole = len(pairs) == in_all[pattern] and len(every) == 1
        if not whole:
            found += [
                WeightFinding("layer", match.reference, match.port, f"{offset:+d}")
                for offset, match in pairs
                if offset != 0
            ]
    return found


def _tied(reference: nn.Module) -> list[list[str]]:
    """Return the names of tensors that have several names."""
    groups: dict[int, list[str]] = {}
    for name, parameter in reference.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def _untied(reference: nn.Module, ours: dict[str, Tensor], taken: set[str]) -> list[WeightFinding]:
    """Find a tensor that has two names in the reference, but in the port is two tensors with
    different values."""
    found: list[WeightFinding] = []
    for names in _tied(reference):
        shape = set(reference.get_parameter(names[0]).shape)
        loose = [
            n for n, t in ours.items() if n not in taken and set(t.shape) == shape and t.dim() == 2
        ]
        found += [WeightFinding("untied", names[-1], name) for name in loose]
    return found


def _taken(
    reference: nn.Module, matches: list[WeightMatch], matched: dict[str, list[WeightMatch]]
) -> set[str]:
    """Return the port's tensors that hold the right weights; a tied weight may appear there several
    times."""
    tied = [match for names in _tied(reference) for n in names for match in matched.get(n, ())]
    return {name for match in (*matches, *tied) for name in match.port.split(", ")}


def _left_over(
    theirs: dict[str, Tensor],
    ours: dict[str, Tensor],
    matched: dict[str, list[WeightMatch]],
    templates: Counter[tuple[str, str]],
    taken: set[str],
) -> list[WeightFinding]:
    """Find what the port lacks, what only the port has, and what it has twice."""
    missing = [name for name, options in matched.items() if not options]
    # Ones and zeros of the reference may have no tensor in the port at all.
    loose = [
        name for name in ours if name not in taken and not _is_a_constant_of(name, ours, theirs)
    ]
    found: list[WeightFinding] = []
    for name in missing:
        partner = _partner(name, theirs[name], loose, ours, templates)
        if partner is None:
            found.append(WeightFinding("missing", name))
            continue
        loose.remove(partner)
        found.append(_pair(name, partner, ours, theirs, matched))
    found += [WeightFinding("unknown", "", name) for name in loose if not _is_constant(ours[name])]
    return found


def _pair(
    name: str,
    partner: str,
    ours: dict[str, Tensor],
    theirs: dict[str, Tensor],
    matched: dict[str, list[WeightMatch]],
) -> WeightFinding:
    one, other = theirs[name], ours[partner]
    if one.shape == other.shape:
        apart = float((one.double() - other.double()).abs().max() / one.double().abs().max())
        if apart < 0.02:
            return WeightFinding("rounded", name, partner, f"{apart:.0e}")
    for same, options in matched.items():
        if any(option.port == partner for option in options):
            return WeightFinding("duplicated", name, partner, same)
    return WeightFinding("initial" if _looks_initial(other) else "other", name, partner)


def _is_a_constant_of(name: str, ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> bool:
    tensor = ours[name]
    return _is_constant(tensor) and any(
        t.shape == tensor.shape and _is_constant(t) and torch.equal(t, tensor)
        for t in theirs.values()
    )


def _partner(
    name: str,
    tensor: Tensor,
    loose: list[str],
    ours: dict[str, Tensor],
    templates: Counter[tuple[str, str]],
) -> str | None:
    """Return the port's tensor that should hold a weight: the corresponding tensor of this layer,
    if other layers show which it is, or else the only tensor of that shape."""
    fitting = [n for n in loose if sorted(ours[n].shape) == sorted(tensor.shape)]
    if not fitting:
        return None

    def rank(other: str) -> tuple[int, bool]:
        return templates[_pattern(name), _pattern(other)], _numbers(name) == _numbers(other)

    return max(fitting, key=rank)


def _looks_initial(tensor: Tensor) -> bool:
    """Tell whether values are ones, zeros, or drawn by a usual initialisation, whose width follows
    from the shape."""
    if _is_constant(tensor):
        return True
    values = tensor.double().flatten()
    std, largest = float(values.std()), float(values.abs().max())
    fan_in = tensor[0].numel() if tensor.dim() > 1 else len(tensor)
    is_uniform = abs(largest / (std * 3**0.5) - 1) < 0.08
    near = [fan_in**-0.5 / 3**0.5, 0.02, 1.0, (2 / sum(tensor.shape[:2])) ** 0.5, fan_in**-0.5]
    return is_uniform or any(abs(std / width - 1) < 0.1 for width in near)


def by_shape(theirs: dict[str, Tensor], ours: dict[str, Tensor]) -> dict[str, str]:
    """Match the weights of port and reference by shape, if each shape occurs equally often in the
    two models, in the order in which the models define them. Empty if shapes do not determine the
    match."""
    shapes: dict[tuple[int, ...], tuple[list[str], list[str]]] = {}
    for n, tensors in enumerate((theirs, ours)):
        for name, tensor in tensors.items():
            shapes.setdefault(tuple(tensor.shape), ([], []))[n].append(name)
    if any(len(one) != len(other) for one, other in shapes.values()):
        return {}
    return {port: name for one, other in shapes.values() for name, port in zip(one, other)}


@torch.no_grad()
def copy_by_shape(reference: nn.Module, port: nn.Module, mapping: dict[str, str]) -> None:
    """Write the reference's weights into the port."""
    theirs, ours = dict(reference.named_parameters()), dict(port.named_parameters())
    for name, other in mapping.items():
        ours[name].copy_(theirs[other])
