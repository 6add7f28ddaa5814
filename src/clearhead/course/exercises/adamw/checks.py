"""Checks of exercise 12."""

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
from clearhead.course.exercises.adamw import solution

CHECKS = Checks()
USUAL: dict[str, Any] = {"step": 1, "lr": 0.001, "betas": (0.9, 0.95), "eps": 1e-8, "decay": 0.1}


def _numbers(*values: float) -> list[Tensor]:
    return [torch.tensor([value], dtype=torch.float64) for value in values]


def _walk(f: Any, n_steps: int = 4, size: float = 1.0, **changed: Any) -> list[Tensor]:
    """Return w, m and v after a few steps with random gradients."""
    w, m, v = torch.randn(3, 4).double(), torch.zeros(3, 4).double(), torch.zeros(3, 4).double()
    for step in range(1, n_steps + 1):
        g = size * torch.randn(3, 4).double()
        w, m, v = f(w, g, m, v, **{**USUAL, "lr": 0.05, **changed, "step": step})
    return [w, m, v]


def _probe(f: Any) -> object:
    return [*_walk(f, 1), *_walk(f), *_walk(f, 2, 1e-3, eps=1e-3, betas=(0.8, 0.99), decay=0.3)]


PROBES: dict[str, FunctionProbe] = {"adamw_step": _probe}


@CHECKS.about("adamw_step")
def three_tensors(it: Learned) -> None:
    """The answer returns three tensors, w, m and v, of the shape of w."""
    found = it["adamw_step"](*(torch.ones(2, 3) for _ in range(4)), **USUAL)
    shapes = [tuple(x.shape) for x in found]
    require(shapes == [(2, 3)] * 3, found=shapes)


@CHECKS.about("adamw_step")
def averages(it: Learned) -> None:
    """m and v are those of the example."""
    _, m, v = it["adamw_step"](*_numbers(1.0, 0.1, 0.0, 0.0), **USUAL)
    holds = abs(m.item() - 0.01) < 1e-7 and abs(v.item() - 0.0005) < 1e-7
    require(holds, m=f"{m.item():.5g}", v=f"{v.item():.5g}")


@CHECKS.about("adamw_step")
def the_example(it: Learned) -> None:
    """w is that of the example."""
    w = it["adamw_step"](*_numbers(1.0, 0.1, 0.0, 0.0), **USUAL)[0].item()
    require(abs(w - 0.9989) < 1e-6, found=f"{w:.6f}")


@CHECKS.about("adamw_step")
def first_step(it: Learned) -> None:
    """The first step is lr long, however large the gradient is, and goes downhill."""
    for g in (1e-3, 0.1, 50.0, -2.0):
        moved = it["adamw_step"](*_numbers(0.0, g, 0.0, 0.0), **USUAL)[0].item()
        wanted = -0.001 if g > 0 else 0.001
        require(abs(moved - wanted) < 1e-6, g=g, found=f"{moved:.3g}", wanted=wanted)


@CHECKS.about("adamw_step")
def decay_beside(it: Learned) -> None:
    """Without a gradient, a weight shrinks by lr · decay, and the averages stay 0."""
    w, m, v = it["adamw_step"](*_numbers(2.0, 0.0, 0.0, 0.0), **{**USUAL, "lr": 0.1})
    holds = abs(w.item() - 1.98) < 1e-6 and m.item() == 0 and v.item() == 0
    require(holds, w=f"{w.item():.4g}", m=f"{m.item():.3g}", v=f"{v.item():.3g}")


@CHECKS.about("adamw_step")
def as_torch(it: Learned) -> None:
    """Five steps give the weights of torch.optim.AdamW."""
    weight = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    torchs = torch.optim.AdamW([weight], lr=0.05, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    w, m, v = weight.detach().clone(), torch.zeros_like(weight), torch.zeros_like(weight)
    m, v = m.detach(), v.detach()
    for step in range(1, 6):
        weight.grad = torch.randn_like(weight)
        w, m, v = it["adamw_step"](w, weight.grad, m, v, **{**USUAL, "lr": 0.05, "step": step})
        torchs.step()
        change = distance(w, weight)
        require(change < 1e-6, step=step, change=f"{change:.2g}")


@CHECKS.about("adamw_step")
def small_gradients(it: Learned) -> None:
    """If gradients are small, eps counts: it is added outside the root, after the correction."""
    given = _numbers(0.0, 1e-4, 0.0, 0.0)
    found = it["adamw_step"](*given, **{**USUAL, "eps": 1e-4, "lr": 1.0})[0].item()
    require(abs(found + 0.5) < 1e-4, found=f"{found:.4f}")


@CHECKS.about("adamw_step")
def late_steps(it: Learned) -> None:
    """At step 100,000 the correction is 1."""
    given = [torch.randn(5).double() for _ in range(3)] + [torch.rand(5).double()]
    settings = {**USUAL, "step": 100_000, "lr": 0.1}
    found, wanted = it["adamw_step"](*given, **settings), solution.adamw_step(*given, **settings)
    require(close(found[0], wanted[0]), change=f"{distance(found[0], wanted[0]):.2g}")


@CHECKS.about("adamw_step")
def inputs_unchanged(it: Learned) -> None:
    """The answer returns a new w, m and v, and leaves its inputs unchanged."""
    require_unchanged(
        lambda *given: it["adamw_step"](*given, **USUAL), *(torch.rand(4) for _ in range(4))
    )
