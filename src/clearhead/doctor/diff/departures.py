"""Finds all places at which the port departs from the reference. At each departure, the reference's
value replaces the port's, and the search begins again from the output."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from .cuts import Cut
from .evidence import Cause, Evidence
from .experiments import find_cause, find_single_cause
from .fingerprints import distance
from .layouts import relative
from .matching import Matching, add_noise, loops, side_by_side
from .narrowing import narrowed
from .operations import LOW, SourceLine
from .places import port_line, region_lines
from .recorded import Plan, Recording
from .searching import best_cuts
from .sides import Program
from .substituting import Substitution

_TIMES_NOISE = 8
_EXACT = 1e-9
_USUAL_NOISE = 1e-7
_MAX_WALKS = 48


@dataclass(frozen=True)
class Departure:
    """One line of the port that computes something other than the reference does."""

    line: SourceLine | None
    lines: tuple[SourceLine, ...]
    """The lines between the last tensors that both programs have and the next such tensor. There
    are several if the two programs take different steps."""
    reference_lines: tuple[SourceLine, ...]
    operation: str
    reference_operation: str
    shape: tuple[int, ...]
    reference_shape: tuple[int, ...]
    difference: float
    """The difference of this tensor from the reference's, as a share of its size."""
    noise: float
    """The noise of single precision at this tensor, as a share of its size."""
    effect: float
    """How much the logits change, as a share of their size, when the reference's value is put
    here."""
    cause: Cause | None
    count: int = 1
    """The number of places in the run: a line runs once for each layer."""

    @property
    def is_rounding(self) -> bool:
        """Tell whether the difference is no larger than the noise of single precision."""
        return self.difference <= _TIMES_NOISE * max(self.noise, _USUAL_NOISE)


@dataclass
class Walk:
    """What was found on the way from the output back to the inputs."""

    departures: list[Departure] = field(default_factory=list)
    difference: float = 0.0
    """The difference of the logits, as a share of their size."""
    noise: float = 0.0
    rest: float = 0.0
    """The difference that remains when the reference's values replace the port's at all
    departures."""
    judged: bool = True
    """True if everything after the departures could be compared."""
    n_operations: int = 0
    n_common: int = 0

    @property
    def same(self) -> bool:
        """Tell whether the logits differ by no more than the rounding of single precision."""
        return self.difference <= self.bound

    @property
    def bound(self) -> float:
        """Return the largest difference that counts as equal."""
        return max(_TIMES_NOISE * self.noise, _EXACT)

    @property
    def floor(self) -> float:
        """Return the difference below which nothing is searched for. It is lower than the bound:
        another epsilon, for example, may change the logits by less than the rounding of single
        precision, and is a departure all the same."""
        return max(self.noise / 4, _EXACT)


def walk(reference: Program, port: Program, *, seconds: float = 120.0) -> Walk:
    """Run both programs, and follow the port's output back to the places at which it departs."""
    # The time of this thread alone: what a busy machine does beside it changes no result.
    started = time.thread_time()
    theirs, ours = reference.run(), port.run()
    if _apart(theirs, ours) > _EXACT:
        theirs = _in_parts(reference, theirs, ours)
    singles = [side.run(Plan(precision=torch.float32)) for side in (reference, port)]
    noise = max(add_noise(theirs, singles[0]), add_noise(ours, singles[1]))
    result = Walk(difference=_apart(theirs, ours), noise=noise)
    result.departures = lower_precision(reference, port, singles[0], singles[1], noise)
    result.rest = result.difference
    matching = Matching(theirs, ours)
    computed = [o for o in ours.operations if not (o.reorders or o.is_leaf)]
    result.n_operations = len(computed)
    result.n_common = sum(matching.knows(o.index) for o in computed)
    cuts: list[Cut] = []
    cut_departures: list[tuple[Cut, Departure]] = []
    while result.rest > result.floor:
        late = time.thread_time() - started > seconds or len(cuts) >= _MAX_WALKS
        forced = None if late else _next(reference, port, matching, cuts)
        if forced is None:
            result.judged = result.rest <= result.bound
            break
        narrow, observed = forced
        if result.rest <= result.bound and not all(d.cause for d in observed):
            break  # so little may be rounding: without a cause nothing is said
        port.fixes = _with_cuts(port.fixes, narrow)
        before, ours = ours, _again(port, ours)
        effect = _apart(before, ours)
        rest = _apart(theirs, ours)
        cut_departures += [(cut, replace(d, effect=effect)) for cut, d in zip(narrow, observed)]
        result.rest = rest
        matching = Matching(theirs, ours)
    result.departures += _needed(port, matching, cut_departures)
    return result


def _with_cuts(fixes: Plan, cuts: list[Cut]) -> Plan:
    for cut in cuts:
        values = {**fixes.replace, **cut.plan.replace}
        fixes = replace(fixes, replace=values, swaps=(*fixes.swaps, *cut.plan.swaps))
    return fixes


def _needed(
    port: Program, full: Matching, found: list[tuple[Cut, Departure]]
) -> Iterator[Departure]:
    """Keep each departure without whose correction some tensor loses its equal. A line that was
    blamed first, before the others were known, may be explained by the others."""
    groups: dict[tuple[object, ...], list[tuple[Cut, Departure]]] = {}
    for cut, departure in found:
        kind = None if departure.cause is None else departure.cause.kind
        groups.setdefault((departure.line, kind), []).append((cut, departure))
    known, start = set(full.of_port), replace(port.fixes, replace={}, swaps=())
    # Of two that explain each other, the one with a cause stays.
    for name in sorted(groups, key=lambda name: name[1] is not None) if len(groups) > 1 else ():
        others = [cut for n, group in groups.items() if n != name for cut, _ in group]
        port.fixes = _with_cuts(start, others)
        run = _again(port, full.port)
        fewer = known - set(Matching(full.reference, run).of_port)
        least = max(_apart(full.reference, full.port), _EXACT)
        if not fewer and _apart(full.reference, run) <= least:
            del groups[name]
    port.fixes = _with_cuts(start, [cut for group in groups.values() for cut, _ in group])
    return _grouped([[departure for _, departure in group] for group in groups.values()])


def _in_parts(reference: Program, theirs: Recording, ours: Recording) -> Recording:
    """Return the reference's run. If a loop of the port computes some of its results part by part,
    the run also records these parts."""
    reference.parts = loops(Matching(theirs, ours))
    if reference.parts:
        again = reference.run()
        equals = Matching(again, ours).of_port.values()
        if any(again.operations[equal.index].nth is not None for equal in equals):
            return again
        reference.parts = frozenset()
    return theirs


def lower_precision(
    reference: Program, port: Program, theirs: Recording, ours: Recording, noise: float
) -> list[Departure]:
    """Find where the port alone computes with fewer than 32 bits, if the logits show it: without
    these casts, they are as precise as the reference's."""
    if not ours.n_low or any(p.dtype in LOW for p in port.model.parameters()):
        return []
    honest = port.run(Plan(precision=None))
    effect = _apart(ours, honest)
    if theirs.n_low and 4 * _apart(theirs, reference.run(Plan(precision=None))) > effect:
        return []
    if effect <= max(_TIMES_NOISE * noise, _EXACT):
        return []
    far: dict[int, float] = {}
    for operation, other in side_by_side(honest, ours):
        one, two = operation.fingerprint, None if other is None else other.fingerprint
        far[operation.index] = 0.0 if one is None or two is None else distance(one, two)
        before = max((far[i] for i in operation.inputs), default=0.0)
        low = operation.dtype in LOW
        if low and far[operation.index] > 100 * max(before, 1e-8) and operation.line is not None:
            cause = Cause("precision", {"dtype": str(operation.dtype).removeprefix("torch.")})
            return [
                Departure(
                    line=operation.line,
                    lines=(operation.line,),
                    reference_lines=(),
                    operation=operation.name,
                    reference_operation="",
                    shape=operation.shape,
                    reference_shape=(),
                    difference=far[operation.index],
                    noise=noise,
                    effect=effect,
                    cause=cause,
                )
            ]
    return []


def _next(
    reference: Program, port: Program, matching: Matching, cuts: list[Cut]
) -> tuple[list[Cut], list[Departure]] | None:
    """Return the next cuts and what is known about them. Of several cuts that restore equally much,
    choose one whose cause an experiment shows."""
    end = matching.port.output
    assert end is not None
    if matching.knows(end):
        # Equal up to the order of its elements, or an earlier tensor of the reference.
        matching.forget_outputs()
    substitution = Substitution(reference, port, matching)
    known = {(c.kind, c.index, c.source, c.calls) for c in cuts}
    best: tuple[list[Cut], list[Departure]] | None = None
    for cut in best_cuts(substitution, cuts):
        narrow = narrowed(substitution, cut)
        single = None
        if len(narrow) > 1 and cut.kind == "replace":
            single = find_single_cause(Evidence(substitution, cut))
            narrow = [cut] if single is not None else narrow
        fresh = [c for c in narrow if (c.kind, c.index, c.source, c.calls) not in known]
        observed = [_observed(substitution, c, single) for c in fresh]
        is_explained = all(d.cause for d in observed)
        if fresh and (best is None or is_explained):
            best = fresh, observed
        if best is not None and is_explained:
            break
    if best is not None:
        cuts += best[0]
    return best


def _again(port: Program, before: Recording) -> Recording:
    """Run the port with its fixes; each operation keeps the noise that was measured before."""
    run = port.run()
    for operation, other in zip(run.operations, before.operations):
        operation.noise = other.noise
    return run


def _apart(one: Recording, other: Recording) -> float:
    assert one.logits is not None and other.logits is not None
    first, second = _common(one.logits, other.logits)
    return relative(first, second)


def _common(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Restrict logits to the tokens that both models have: a vocabulary may be padded to a rounder
    size."""
    n = min(one.shape[-1], other.shape[-1])
    return one[..., :n], other[..., :n]


def _observed(substitution: Substitution, cut: Cut, cause: Cause | None = None) -> Departure:
    evidence = Evidence(substitution, cut)
    cause = cause or find_cause(evidence)
    bypass = substitution.as_bypass(cut) if cause is None else None
    if bypass is not None and (cause := find_cause(Evidence(substitution, bypass))) is not None:
        evidence = Evidence(substitution, bypass)
    mine, theirs = evidence.mine, substitution.matching.whole(evidence.theirs)
    return Departure(
        line=port_line(evidence, cause),
        lines=region_lines(evidence.region, mine),
        reference_lines=region_lines(evidence.their_region, theirs),
        operation=mine.part_of or mine.name,
        reference_operation=theirs.part_of or theirs.name,
        shape=mine.shape,
        reference_shape=theirs.shape,
        difference=evidence.difference,
        noise=max(mine.noise, theirs.noise),
        effect=0.0,
        cause=cause,
        count=1 + len(cut.also),
    )


def _grouped(groups: list[list[Departure]]) -> Iterator[Departure]:
    """Merge the departures of each line and cause into one, with the largest effect."""
    for group in groups:
        largest = max(group, key=lambda departure: departure.effect)
        yield replace(group[0], count=sum(d.count for d in group), effect=largest.effect)
