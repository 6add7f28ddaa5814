"""Checks of exercise 1. All sizes differ, so that a swapped axis fails."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearhead.course.checking import (
    Checks,
    FunctionProbe,
    Learned,
    close,
    distance,
    gradient_distance,
    gradients,
    require,
    require_unchanged,
    scattered,
)
from clearhead.course.exercises.attention import solution

CHECKS = Checks()


def _given() -> tuple[Tensor, Tensor]:
    return torch.randn(2, 3, 7), torch.randn(2, 5, 7)


def _far_apart() -> tuple[Tensor, Tensor]:
    """The scores of the three queries lie around 150, 0 and −150: exp alone overflows or is 0."""
    queries, keys = _given()
    queries[..., 0], keys[..., 0] = torch.tensor([150.0, 0, -150]) * 7**0.5, 1.0
    return queries, keys


def _sure() -> tuple[Tensor, Tensor]:
    """Each query has scores of 200, 0 and −200 side by side."""
    queries, keys = _given()
    queries[..., 0], keys[..., 0] = 7**0.5, torch.tensor([200.0, 0, -200, 100, -100])
    return queries, keys


def probe_far_apart(f: Any) -> object:
    """Call the answer with scores so far apart that exp alone overflows or is 0."""
    return f(*_far_apart())


def probe_gradients(f: Callable[..., Tensor]) -> object:
    """Return the gradients with respect to queries and keys."""
    return gradients(f, *_given())


PROBES: dict[str, FunctionProbe] = {
    "attention_weights": lambda f: f(*_given()),
    "attention": lambda f: f(*_given(), torch.randn(2, 5, 4)),
}


@CHECKS.about("attention_weights")
def shape(it: Learned) -> None:
    """There is one weight for every pair of a query and a key."""
    found = it["attention_weights"](torch.randn(2, 3, 7), torch.randn(2, 5, 7))
    require(found.shape == (2, 3, 5), found=tuple(found.shape))


@CHECKS.about("attention_weights")
def inputs_unchanged(it: Learned) -> None:
    """The inputs stay unchanged: `queries /= …` would overwrite what the caller still needs."""
    require_unchanged(it["attention_weights"], *_given())


@CHECKS.about("attention_weights")
def rows(it: Learned) -> None:
    """Each query's weights sum to 1."""
    w = it["attention_weights"](torch.randn(2, 3, 7), torch.randn(2, 5, 7))
    rows, columns = w.sum(-1), w.sum(-2)
    require(
        close(rows, torch.ones(2, 3)),
        rows=f"{rows.min():.2f}–{rows.max():.2f}",
        columns=f"{columns.min():.2f}–{columns.max():.2f}",
    )


@CHECKS.about("attention_weights")
def positive(it: Learned) -> None:
    """A softmax gives no zero and nothing negative."""
    queries, keys = 3 * torch.randn(2, 3, 7), torch.randn(2, 30, 7)  # down to about 1e-8
    w, right = it["attention_weights"](queries, keys), solution.attention_weights(queries, keys)
    least, wanted = w.min(), right.flatten()[w.argmin()]
    require(least > 0, least=f"{least:.2g}", wanted=f"{wanted:.2g}")


@CHECKS.about("attention_weights")
def same_vector_added(it: Learned) -> None:
    """Only differences of scores count."""
    q, k, shift = torch.randn(2, 3, 7), torch.randn(2, 5, 7), torch.randn(1, 1, 7)
    change = (it["attention_weights"](q, k + shift) - it["attention_weights"](q, k)).abs().max()
    require(change < 1e-4, change=f"{change:.2g}")


@CHECKS.about("attention_weights")
def scale(it: Learned) -> None:
    """If all features are repeated four times, the product grows by 4, √d by 2, and the scores by
    2."""
    q, k = torch.randn(2, 3, 7), torch.randn(2, 5, 7)
    log = it["attention_weights"](q, k).log()
    wide = it["attention_weights"](q.repeat(1, 1, 4), k.repeat(1, 1, 4)).log()
    growth = ((wide[..., 0] - wide[..., 1]) / (log[..., 0] - log[..., 1])).median()
    require((growth - 2).abs() < 1e-2, growth=f"{growth:.2f}")


@CHECKS.about("attention_weights")
def chapter_numbers(it: Learned) -> None:
    """The weights are those of chapter 1. (A scale with another constant would pass the check of
    the growth.)"""
    query, wanted = torch.tensor([[[2.0, 2, 0, 0]]]), torch.tensor([0.592, 0.397, 0.011])
    keys = torch.tensor([[[1.0, 1, 0, 0], [1, 0.6, 0, 0], [-1, -1, 0, 0]]])
    weights = it["attention_weights"](query, keys)[0, 0]
    found = " ".join(f"{w:.3f}" for w in weights.tolist())
    require(close(weights, wanted, 1e-3), found=found)


@CHECKS.about("attention_weights")
def order_of_keys(it: Learned) -> None:
    """Permuted keys permute the columns."""
    q, k, order = torch.randn(2, 3, 7), torch.randn(2, 5, 7), torch.tensor([3, 0, 4, 1, 2])
    w = it["attention_weights"](q, k)
    require(close(it["attention_weights"](q, k[:, order]), w[..., order]))


@CHECKS.about("attention_weights")
def large_scores(it: Learned) -> None:
    """The weights are a softmax, however large the scores are."""
    queries, keys = _far_apart()
    found = it["attention_weights"](queries, keys)
    holds = distance(found, solution.attention_weights(queries, keys)) < 1e-3
    require(holds, found=" ".join(f"{w:.2g}" for w in found[0, 0].tolist()))


@CHECKS.about("attention_weights")
def each_sentence(it: Learned) -> None:
    """The formula holds for each sentence of a batch by itself, and for other sizes."""
    for batch, queries, keys, d in ((3, 4, 4, 4), (1, 1, 6, 8), (4, 2, 1, 3), (3, 6, 2, 16)):
        q, k = scattered(torch.randn(batch, queries, d)), scattered(torch.randn(batch, keys, d))
        change = distance(it["attention_weights"](q, k), solution.attention_weights(q, k))
        size = f"{tuple(q.shape)}, {tuple(k.shape)}"
        require(change < 1e-5, change=f"{change:.2g}", size=size)


@CHECKS.about("attention_weights")
def gradient(it: Learned) -> None:
    """The gradient is right: it is what training changes the queries and keys by."""
    change = gradient_distance(
        it["attention_weights"], solution.attention_weights, *(x.double() for x in _given())
    )
    require(change < 1e-5, change=f"{change:.2g}")


@CHECKS.about("attention_weights")
def gradient_of_large_scores(it: Learned) -> None:
    """The gradient is right in single precision, even if two scores of a query differ by 400."""
    given = _sure()
    found = gradients(it["attention_weights"], *given)
    bad = sum(int((~g.isfinite()).sum()) for g in found)
    change = gradient_distance(it["attention_weights"], solution.attention_weights, *given)
    require(change < 1e-2, bad=bad, change=f"{change:.2g}")


@CHECKS.about("attention")
def identity_values(it: Learned) -> None:
    """If the values are the identity, the output is the weights."""
    q, k = torch.randn(2, 3, 7), torch.randn(2, 5, 7)
    out = it["attention"](q, k, torch.eye(5).expand(2, 5, 5))
    require(close(out, it["attention_weights"](q, k)))


@CHECKS.about("attention")
def inside_the_values(it: Learned) -> None:
    """A weighted mean lies between the smallest and the largest value."""
    q, k, v = torch.randn(2, 3, 7), torch.randn(2, 5, 7), torch.randn(2, 5, 4)
    out = it["attention"](q, k, v)
    require(out.shape == (2, 3, 4), least="-", most="-", found=tuple(out.shape))
    low, high = v.amin(1, keepdim=True) - 1e-5, v.amax(1, keepdim=True) + 1e-5
    require(((out >= low) & (out <= high)).all(), found=tuple(out.shape))


@CHECKS.about("attention")
def values_of_each_sentence(it: Learned) -> None:
    """Each sentence has values of its own, and the gradients of all three inputs are right."""
    given = [torch.randn(*size).double() for size in ((3, 4, 6), (3, 2, 6), (3, 2, 5))]
    require_unchanged(it["attention"], *given)
    change = distance(it["attention"](*given), solution.attention(*given))
    slope = gradient_distance(it["attention"], solution.attention, *given)
    require(change < 1e-5 and slope < 1e-5, change=f"{change:.2g}", slope=f"{slope:.2g}")
