"""Checks of exercise 18. Their weights are made by hand, so that it is known which head does
what."""

import random
from typing import Any

import torch
from torch import Tensor

from clearhead.course.checking import Checks, FunctionProbe, Learned, distance, require

CHECKS = Checks()
PERIOD = 5
CircuitPairs = list[tuple[tuple[int, int], tuple[int, int]]]


def looking(kind: str, strength: float, n_texts: int = 3) -> Tensor:
    """Return weights (batch, 1, query, key): the share `strength` goes where a head of this kind
    looks, and the rest is spread evenly over the allowed keys."""
    n = 2 * PERIOD
    past = torch.ones(n, n).tril()
    target = torch.zeros(n, n)
    for i in range(n):
        place = {"previous": i - 1, "induction": i - PERIOD + 1, "same": i - PERIOD}.get(kind, -1)
        target[i, place if 0 <= place <= i else 0] = 1.0
    spread = past / past.sum(dim=-1, keepdim=True)
    return (strength * target + (1 - strength) * spread).expand(n_texts, 1, n, n)


def layer(*heads: tuple[str, float]) -> Tensor:
    """Return the weights of a layer with several heads."""
    return torch.cat([looking(kind, strength) for kind, strength in heads], dim=1)


def _by_loops(weights: Tensor, back: int, first: int) -> Tensor:
    """Return the mean weight that the queries from `first` on give to key i − back."""
    n_texts, n_heads, n, _ = weights.shape
    found = torch.zeros(n_heads)
    for head in range(n_heads):
        cells = [weights[b, head, i, i - back].item() for b in range(n_texts)
                 for i in range(first, n)]  # fmt: skip
        found[head] = sum(cells) / len(cells)
    return found


def _model() -> list[Tensor]:
    """Return three layers: heads (0, 1) and (1, 0) look back, (1, 2) and (2, 1) are induction
    heads, and (0, 0) would be one if there were a layer before it."""
    return [
        layer(("induction", 0.8), ("previous", 0.9), ("same", 0.7)),
        layer(("previous", 0.55), ("none", 0.0), ("induction", 0.7)),
        layer(("same", 0.9), ("induction", 0.9), ("none", 0.3)),
    ]


CIRCUITS: CircuitPairs = [((0, 1), (2, 1)), ((0, 1), (1, 2)), ((1, 0), (2, 1))]


def _uneven() -> list[Tensor]:
    """Return two layers in which the pair (0, 0), (1, 0) has the higher sum of scores, and the pair
    (0, 1), (1, 1) the higher product."""
    return [
        layer(("previous", 0.98), ("previous", 0.62)),
        layer(("induction", 0.43), ("induction", 0.7)),
    ]


BY_PRODUCT: CircuitPairs = [((0, i), (1, j)) for i, j in ((0, 1), (1, 1), (0, 0), (1, 0))]


def pairs_of(found: Any) -> CircuitPairs:
    """Convert the answer's pairs to Python numbers, whatever kind of numbers and sequences they
    are."""
    return [((int(a), int(b)), (int(c), int(d))) for (a, b), (c, d) in found]


def _probe_texts(f: Any) -> object:
    texts = f(6, 4, 9, 3)
    half, again = texts[:, :4], texts[:, 4:]
    rows = len({tuple(row) for row in half.tolist()})
    twice = bool((texts[:, ::2] == texts[:, 1::2]).all())
    return [list(texts.shape), bool((half == again).all()), rows > 1, _turned(half, again), twice]


def _turned(half: Tensor, again: Tensor) -> bool:
    return half.shape == again.shape and bool((half.flip(1) == again).all())


def _probe_induction(f: Any) -> object:
    return f(torch.rand(2, 3, 2 * PERIOD, 2 * PERIOD), PERIOD)


def _probe_previous(f: Any) -> object:
    return f(torch.rand(2, 3, 7, 7))


def _probe_circuit(f: Any) -> object:
    chosen = ((_model(), 0.6), (_model(), 0.8), (_uneven(), 0.2))
    return [pairs_of(f(model, PERIOD, threshold)) for model, threshold in chosen]


PROBES: dict[str, FunctionProbe] = {
    "repeated_texts": _probe_texts,
    "induction_scores": _probe_induction,
    "previous_scores": _probe_previous,
    "find_circuit": _probe_circuit,
}


def disturbs_others(repeated_texts: Any) -> bool:
    """Tell whether a call changes the next random numbers of torch or of Python."""

    def drawn(*between: Any) -> list[float]:
        torch.manual_seed(5)
        random.seed(5)
        for call in between:
            call(3, 5, 50, 7)
        return [random.random(), *torch.rand(3).tolist()]

    before = random.getstate()
    try:
        return drawn() != drawn(repeated_texts)
    finally:
        random.setstate(before)


@CHECKS.about("repeated_texts")
def shape(it: Learned) -> None:
    """A text has two halves."""
    found = tuple(it["repeated_texts"](3, 5, 20, 1).shape)
    require(found == (3, 10), found=found)


@CHECKS.about("repeated_texts")
def repeats(it: Learned) -> None:
    """The second half repeats the first half in the same order."""
    texts = it["repeated_texts"](4, 6, 50, 1)
    require(torch.equal(texts[:, :6], texts[:, 6:]), found=texts[0].tolist())


@CHECKS.about("repeated_texts")
def random_halves(it: Learned) -> None:
    """Each text repeats a random half of its own, drawn from the whole vocabulary."""
    texts = it["repeated_texts"](200, 8, 7, 1)
    rows = len({tuple(row) for row in texts.tolist()})
    ids = sorted(set(texts.flatten().tolist()))
    require(rows > 190 and ids == list(range(7)), rows=rows, ids=ids)


@CHECKS.about("repeated_texts")
def seeded(it: Learned) -> None:
    """The same seed gives the same texts, and other random numbers are unaffected."""
    f = it["repeated_texts"]
    same = torch.equal(f(3, 5, 50, 7), f(3, 5, 50, 7))
    other = torch.equal(f(3, 5, 50, 7), f(3, 5, 50, 8))
    require(same and not other and not disturbs_others(f), same=same, other=other)


@CHECKS.about("induction_scores")
def a_perfect_head(it: Learned) -> None:
    """An induction head scores 1, and heads that look elsewhere score 0."""
    weights = layer(("induction", 1.0), ("previous", 1.0), ("same", 1.0))
    found = it["induction_scores"](weights, PERIOD)
    require(distance(found, torch.tensor([1.0, 0.0, 0.0])) < 1e-5,
            found=" ".join(f"{x:.2f}" for x in found.flatten().tolist()))  # fmt: skip


@CHECKS.about("induction_scores")
def any_weights(it: Learned) -> None:
    """The score is the mean over the texts and over the queries of the second half."""
    for n_texts, n_heads, period in ((1, 4, 3), (5, 2, 6)):
        weights = torch.rand(n_texts, n_heads, 2 * period, 2 * period)
        found = it["induction_scores"](weights, period)
        change = distance(found, _by_loops(weights, period - 1, period))
        require(change < 1e-5, change=f"{change:.2g}")


@CHECKS.about("previous_scores")
def looks_back(it: Learned) -> None:
    """A previous-token head scores 1; the score is the mean over all queries but the first."""
    perfect = it["previous_scores"](layer(("previous", 1.0), ("same", 1.0)))
    require(abs(float(perfect[0]) - 1) < 1e-5, found=f"{float(perfect[0]):.2f}")
    weights = torch.rand(4, 3, 6, 6)
    change = distance(it["previous_scores"](weights), _by_loops(weights, 1, 1))
    require(change < 1e-5, found=f"{change:.2g}")


@CHECKS.about("find_circuit")
def the_circuits(it: Learned) -> None:
    """All pairs are found, the strongest first."""
    found = pairs_of(it["find_circuit"](_model(), PERIOD, 0.6))
    require(found == CIRCUITS, found=found, wanted=CIRCUITS)
    found = pairs_of(it["find_circuit"](_uneven(), PERIOD, 0.2))
    require(found == BY_PRODUCT, found=found, wanted=BY_PRODUCT)


@CHECKS.about("find_circuit")
def both_exceed(it: Learned) -> None:
    """Both scores must exceed the threshold: a higher threshold leaves fewer pairs, and a score
    that equals it is too low."""
    found = pairs_of(it["find_circuit"](_model(), PERIOD, 0.8))
    require(found == CIRCUITS[:1], threshold=0.8, found=found, wanted=CIRCUITS[:1])
    half = 0.5 * looking("induction", 1.0, 1) + 0.5 * looking("same", 1.0, 1)
    found = pairs_of(it["find_circuit"]([looking("previous", 1.0), half], PERIOD, 0.5))
    require(found == [], threshold=0.5, found=found, wanted=[])


@CHECKS.about("find_circuit")
def no_circuit(it: Learned) -> None:
    """A single layer has no circuit, nor does an induction head that comes before the
    previous-token head."""
    one = pairs_of(it["find_circuit"](_model()[:1], PERIOD, 0.5))
    turned = pairs_of(it["find_circuit"](
        [layer(("induction", 0.9)), layer(("previous", 0.9))], PERIOD, 0.5))  # fmt: skip
    require(one == [] and turned == [], found=one or turned)


@CHECKS.about("find_circuit")
def any_heads(it: Learned) -> None:
    """Each layer may have any number of heads."""
    model = [layer(("none", 0.1)), layer(("same", 0.8), ("previous", 0.7)),
             layer(("none", 0.0), ("none", 0.2), ("none", 0.1), ("induction", 0.8))]  # fmt: skip
    found = pairs_of(it["find_circuit"](model, PERIOD, 0.5))
    require(found == [((1, 1), (2, 3))], found=found, wanted=[((1, 1), (2, 3))])
