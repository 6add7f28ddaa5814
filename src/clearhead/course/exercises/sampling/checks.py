"""Checks of exercise 13."""

from typing import Any

import torch
from torch import Tensor

from clearhead.course.checking import (
    Checks,
    FunctionProbe,
    Learned,
    close,
    distance,
    require,
    require_unchanged,
)
from clearhead.course.exercises.sampling import solution

CHECKS = Checks()
FOUR = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
ALL: dict[str, Any] = {"temperature": 1.0, "top_k": None, "top_p": 1.0}


def _probe_chances(f: Any) -> object:
    logits = 2 * torch.randn(3, 8)
    choices: list[dict[str, Any]] = [
        {},
        {"temperature": 0.7},
        {"top_k": 3},
        {"top_p": 0.6},
        {"temperature": 1.7, "top_k": 5, "top_p": 0.8},
        {"top_k": 2, "top_p": 0.7},
    ]
    return [f(logits.clone(), **{**ALL, **choice}) for choice in choices]


def _probe_draw(f: Any) -> object:
    p = torch.rand(6, 5).masked_fill(torch.rand(6, 5) < 0.3, 0.0) + 1e-3 * torch.eye(6, 5)
    p = p / p.sum(dim=1, keepdim=True)
    return [f(p, torch.rand(6)).long(), f(p, torch.zeros(6)).long()]


PROBES: dict[str, FunctionProbe] = {"chances": _probe_chances, "draw": _probe_draw}


def _shown(p: Tensor) -> str:
    return " ".join(f"{x:.3f}" for x in p.flatten().tolist())


def _require_row(found: Tensor, wanted: list[float]) -> None:
    require(close(found, torch.tensor([wanted]), 1e-3), found=_shown(found))


@CHECKS.about("chances")
def plain(it: Learned) -> None:
    """If nothing is set, the result is a softmax."""
    logits = torch.randn(2, 6)
    found = it["chances"](logits, **ALL)
    require(close(found, logits.softmax(1)), change=f"{distance(found, logits.softmax(1)):.2g}")


@CHECKS.about("chances")
def temperature(it: Learned) -> None:
    """With a temperature, the probabilities are those of the chapter's table."""
    _require_row(
        it["chances"](FOUR.clone(), **{**ALL, "temperature": 0.5}), [0.865, 0.117, 0.016, 0.002]
    )


@CHECKS.about("chances")
def temperature_0(it: Learned) -> None:
    """A temperature of 0 chooses the likeliest token, without a NaN."""
    logits = torch.tensor([[0.0, 3.0, 3.0, -1.0]])
    _require_row(it["chances"](logits, **{**ALL, "temperature": 0}), [0.0, 1.0, 0.0, 0.0])


@CHECKS.about("chances")
def k(it: Learned) -> None:
    """With top_k = 2, two tokens remain."""
    _require_row(it["chances"](FOUR.clone(), **{**ALL, "top_k": 2}), [0.731, 0.269, 0.0, 0.0])


@CHECKS.about("chances")
def k_of_all(it: Learned) -> None:
    """If top_k is larger than the vocabulary, all tokens remain."""
    found = it["chances"](FOUR.clone(), **{**ALL, "top_k": 9})
    require(close(found, FOUR.softmax(1)), found=_shown(found))


@CHECKS.about("chances")
def p(it: Learned) -> None:
    """The token with which the sum reaches top_p remains."""
    _require_row(it["chances"](FOUR.clone(), **{**ALL, "top_p": 0.9}), [0.665, 0.245, 0.090, 0.0])


@CHECKS.about("chances")
def p_keeps_one(it: Learned) -> None:
    """One token remains, however small top_p is."""
    _require_row(it["chances"](FOUR.clone(), **{**ALL, "top_p": 0.01}), [1.0, 0.0, 0.0, 0.0])


@CHECKS.about("chances")
def p_keeps_all(it: Learned) -> None:
    """With top_p = 1 all tokens remain, even those that rounding would lose in the sum."""
    found = it["chances"](torch.tensor([[20.0, 0.0, -5.0]]), **ALL)
    require(bool((found > 0).all()), found=" ".join(f"{x:.2g}" for x in found.flatten().tolist()))


@CHECKS.about("chances")
def in_their_places(it: Learned) -> None:
    """If the tokens are permuted, the probabilities are permuted alike."""
    order = torch.tensor([2, 0, 3, 1])
    found = it["chances"](FOUR[:, order], **{**ALL, "top_p": 0.9})
    _require_row(found, [0.090, 0.665, 0.0, 0.245])


@CHECKS.about("chances")
def order_of_the_three(it: Learned) -> None:
    """The temperature comes first, and top-p acts on what top-k has left."""
    hot = it["chances"](FOUR.clone(), temperature=2.0, top_k=None, top_p=0.9)
    require(bool((hot > 0).all()), found=_shown(hot), wanted="0.455 0.276 0.167 0.102")
    both = it["chances"](FOUR.clone(), temperature=1.0, top_k=2, top_p=0.7)
    require(bool(both[0, 0] > 0.999), found=_shown(both), wanted="1 0 0 0")


@CHECKS.about("chances")
def any_rows(it: Learned) -> None:
    """Each row of a batch is treated by itself."""
    logits = 3 * torch.randn(5, 9)
    for choice in ({"top_k": 4}, {"top_p": 0.5}, {"temperature": 3.0, "top_k": 6, "top_p": 0.8}):
        found = it["chances"](logits.clone(), **{**ALL, **choice})
        change = distance(found, solution.chances(logits, **{**ALL, **choice}))
        require(change < 1e-4, choice=choice, change=f"{change:.2g}")


@CHECKS.about("chances")
def far_apart(it: Learned) -> None:
    """Low temperatures with large logits give no NaN."""
    found = it["chances"](300 * FOUR, **{**ALL, "temperature": 0.01, "top_p": 0.9})
    _require_row(found, [1.0, 0.0, 0.0, 0.0])


@CHECKS.about("chances")
def logits_unchanged(it: Learned) -> None:
    """The caller's logits stay unchanged."""
    choice = {"temperature": 0.5, "top_k": 2, "top_p": 0.9}
    require_unchanged(lambda logits: it["chances"](logits, **choice), torch.randn(2, 5))


@CHECKS.about("draw")
def frequencies(it: Learned) -> None:
    """In 4,000 draws, each token is drawn as often as its probability says."""
    wanted = torch.tensor([0.1, 0.0, 0.6, 0.3])
    ids = it["draw"](wanted.expand(4000, 4), torch.rand(4000))
    found = torch.bincount(ids.long(), minlength=4) / 4000
    require(distance(found, wanted) < 0.04, found=_shown(found))


@CHECKS.about("draw")
def by_the_sum(it: Learned) -> None:
    """The random number decides which token is drawn, by the running sum of the probabilities."""
    u = torch.tensor([0.0, 0.09, 0.11, 0.69, 0.71, 0.99])
    ids = it["draw"](torch.tensor([0.1, 0.0, 0.6, 0.3]).expand(6, 4), u).tolist()
    require(ids == [0, 0, 2, 2, 3, 3], found=" ".join(map(str, ids)))


@CHECKS.about("draw")
def never_a_zero(it: Learned) -> None:
    """A token of probability 0 is never drawn, neither by the lowest nor by the highest number."""
    p = torch.tensor([[0.0, 0.4, 0.6, 0.0], [0.0, 0.5, 0.4999999, 0.0]])
    for u in (0.0, 0.99999994):
        ids = it["draw"](p, torch.full((2,), u)).tolist()
        require(all(i in (1, 2) for i in ids), u=u, found=" ".join(map(str, ids)))
