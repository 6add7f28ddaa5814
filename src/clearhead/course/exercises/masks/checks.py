"""Checks of exercise 2."""

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
from clearhead.course.exercises.masks import solution

CHECKS = Checks()
REAL = torch.tensor([[True, True, True, False], [True, True, False, False]])


def _allowed() -> Tensor:
    """Return a mask for a batch of two that is causal and hides padding."""
    return torch.ones(4, 4, dtype=torch.bool).tril()[None] & REAL[:, None]


def _with_an_empty_row() -> Tensor:
    allowed = _allowed().clone()
    allowed[:, 0] = False
    return allowed


def shifted() -> list[Tensor]:
    """Return scores that are all low, all high, and from −40 to 40. They are eighths, so that 2000
    can be added without rounding."""
    low = torch.randint(-16, 17, (2, 4, 4)) / 8
    return [low - 2000, low + 2000, torch.randint(-320, 321, (2, 4, 4)) / 8]


def probe_shifted(f: Any) -> object:
    """Call the answer with scores at which exp overflows, and at which a small fill value hides
    nothing."""
    return [f(scores, _allowed()) for scores in shifted()]


def probe_gradients(f: Any) -> object:
    """Return the gradients with respect to the scores."""
    allowed = _with_an_empty_row()
    return gradients(lambda scores: f(scores, allowed), torch.randn(2, 4, 4))


def _probe_weights(f: Any) -> object:
    """Return weights with a row in which no key is allowed."""
    return f(torch.randn(2, 4, 4), _with_an_empty_row())


PROBES: dict[str, FunctionProbe] = {
    "causal": lambda f: [f(4, 4), f(1, 4), f(2, 5), f(4, 4).dtype == torch.bool],
    "real_keys": lambda f: f(torch.rand(2, 4) > 0.5),
    "masked_weights": _probe_weights,
}


@CHECKS.about("causal")
def kind(it: Learned) -> None:
    """The mask is a Bool of shape (query, key)."""
    m = it["causal"](3, 4)
    require(m.dtype == torch.bool and m.shape == (3, 4), found=f"{m.dtype} {tuple(m.shape)}")


@CHECKS.about("causal")
def square(it: Learned) -> None:
    """Row i allows position i and the positions before it."""
    m = it["causal"](4, 4)
    right = torch.arange(4)[:, None] >= torch.arange(4)
    rows = "; ".join(" ".join("1" if x else "." for x in row) for row in m.tolist())
    require(torch.equal(m, right), rows=rows)


@CHECKS.about("causal")
def with_a_cache(it: Learned) -> None:
    """With a cache, the newest query sees every key."""
    one, two = it["causal"](1, 4), it["causal"](2, 5)
    counts = two.sum(1).tolist()
    holds = bool(one.all()) and counts == [4, 5]
    require(holds, one=one.int().tolist()[0], counts=counts)


@CHECKS.about("causal")
def other_lengths(it: Learned) -> None:
    """Key j is allowed to query i if j ≤ i + n_keys − n_queries."""
    for n_keys in range(1, 8):
        for n_queries in range(1, n_keys + 3):  # with more queries than keys the first see nothing
            m = it["causal"](n_queries, n_keys)
            rows = "; ".join(" ".join("1" if x else "." for x in row) for row in m.tolist())
            right = solution.causal(n_queries, n_keys)
            require(torch.equal(m, right), lengths=f"{n_queries}, {n_keys}", rows=rows)


@CHECKS.about("real_keys")
def same_for_all_queries(it: Learned) -> None:
    """The mask of padding has the shape (batch, 1, key)."""
    for real in (REAL, torch.rand(3, 5) > 0.5, torch.rand(1, 3) > 0.5):
        found, before = it["real_keys"](real), real.clone()
        holds = found.dtype == torch.bool and torch.equal(found, before[:, None])
        require(holds, found=f"{found.dtype} {tuple(found.shape)}")


@CHECKS.about("masked_weights")
def inputs_unchanged(it: Learned) -> None:
    """The scores stay unchanged: `masked_fill_` would overwrite those of the caller."""
    require_unchanged(it["masked_weights"], torch.randn(2, 4, 4), _allowed())


@CHECKS.about("masked_weights")
def forbidden_are_zero(it: Learned) -> None:
    """A forbidden key gets no weight."""
    allowed = _allowed()
    scores = 50 * torch.randn(2, 4, 4)  # no fill of -30 hides a key from a score of -100
    most = it["masked_weights"](scores, allowed)[~allowed].abs().max()
    require(most < 1e-9, most=f"{most:.2f}")


@CHECKS.about("masked_weights")
def rows_sum_to_1(it: Learned) -> None:
    """The weights of the allowed keys sum to 1."""
    sums = it["masked_weights"](torch.randn(2, 4, 4), _allowed()).sum(-1)
    require(close(sums, torch.ones(2, 4)), least=f"{sums.min():.2f}")


@CHECKS.about("masked_weights")
def under_the_mask(it: Learned) -> None:
    """The scores of forbidden keys do not matter."""
    scores, allowed = torch.randn(2, 4, 4), _allowed()
    other = torch.where(allowed, scores, scores + 7)
    change = it["masked_weights"](other, allowed) - it["masked_weights"](scores, allowed)
    require(change.abs().max() < 1e-5, change=f"{change.abs().max():.2g}")


@CHECKS.about("masked_weights")
def shares_by_score(it: Learned) -> None:
    """The weights of the allowed keys are the softmax of their scores."""
    scores = torch.randn(2, 4, 4)
    found = it["masked_weights"](scores, _allowed())[0, 2, :3]
    wanted = scores[0, 2, :3].softmax(-1)
    texts = [" ".join(f"{w:.2f}" for w in row.tolist()) for row in (found, wanted)]
    require(close(found, wanted), found=texts[0], wanted=texts[1])


@CHECKS.about("masked_weights")
def nothing_allowed(it: Learned) -> None:
    """A row in which no key is allowed becomes all zeros."""
    weights = it["masked_weights"](torch.randn(2, 4, 4), _with_an_empty_row())
    first = [round(x, 2) for x in weights[0, 0].tolist()]
    require(bool((weights[:, 0] == 0).all()) and weights.isfinite().all(), first=first)


@CHECKS.about("masked_weights")
def the_others_keep_theirs(it: Learned) -> None:
    """A row in which no key is allowed does not change any other row."""
    scores, allowed = torch.randn(2, 4, 4), _allowed()
    found = it["masked_weights"](scores.clone(), _with_an_empty_row())[:, 1:]
    change = distance(found, solution.masked_weights(scores, allowed)[:, 1:])
    require(change < 1e-5, change=f"{change:.2g}")


@CHECKS.about("masked_weights")
def finite_gradient(it: Learned) -> None:
    """The gradient is finite, even if a row has no allowed key."""
    scores = torch.randn(2, 4, 4, requires_grad=True)
    weights = it["masked_weights"](scores * 1, _with_an_empty_row())
    require(weights.requires_grad, bad=scores.numel())
    (slope,) = torch.autograd.grad(weights.square().sum(), scores)
    require(slope.isfinite().all(), bad=int((~slope.isfinite()).sum()))


@CHECKS.about("masked_weights")
def gradient_under_the_mask(it: Learned) -> None:
    """The gradient is finite, even if the forbidden scores are much higher or lower than the
    allowed ones."""
    allowed, small = _with_an_empty_row(), torch.randn(2, 4, 4)
    for more in (2000, -2000):
        scores = torch.where(allowed, small, small + more)
        (slope,) = gradients(lambda s: it["masked_weights"](s, allowed), scores)
        require(slope.isfinite().all(), bad=int((~slope.isfinite()).sum()), more=more)


@CHECKS.about("masked_weights")
def all_low_or_high(it: Learned) -> None:
    """A number added to all scores changes nothing."""
    allowed = _allowed()
    for scores in shifted():
        found = it["masked_weights"](scores.clone(), allowed)
        change = distance(found, solution.masked_weights(scores, allowed))
        span = f"{scores.min():.0f} … {scores.max():.0f}"
        require(change < 1e-4, change=f"{change:.2g}", span=span)


@CHECKS.about("masked_weights")
def with_heads(it: Learned) -> None:
    """Each head gets the weights that it would get alone, even under a mask that is the same for
    all queries."""
    scores = torch.randn(2, 3, 4, 4)
    for allowed in (_allowed(), REAL[:, None]):
        found = it["masked_weights"](scores, allowed[:, None])
        require(found.shape == scores.shape, found=tuple(found.shape), head="–")
        for head in range(3):
            alone = it["masked_weights"](scores[:, head], allowed)
            require(close(found[:, head], alone), found=tuple(found.shape), head=head)


@CHECKS.about("masked_weights")
def any_mask(it: Learned) -> None:
    """Under random masks, the weights and the gradient of the scores are right."""
    for size in ((3, 5, 6), (2, 4, 3, 5)):
        scores, allowed = scattered(torch.randn(size)).double(), torch.rand(size) > 0.4
        before = allowed.clone()
        change = distance(
            it["masked_weights"](scores.clone(), allowed), solution.masked_weights(scores, allowed)
        )
        slope = gradient_distance(
            lambda s, a=allowed: it["masked_weights"](s, a),
            lambda s, a=allowed: solution.masked_weights(s, a),
            scores,
        )
        holds = change < 1e-5 and slope < 1e-5 and torch.equal(allowed, before)
        require(holds, change=f"{change:.2g}", slope=f"{slope:.2g}")
