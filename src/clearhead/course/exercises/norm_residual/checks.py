"""Checks of exercise 6. Changes are random vectors: a constant added to all features of a token
would be invisible behind the norm."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.course.checking import Checks, FunctionProbe, Learned, close, require

CHECKS = Checks()
TINY = 1e-12


def _x() -> Tensor:
    return torch.randn(3, 5, 4, dtype=torch.float64) * 3 + 2


def _neutral(f: Any, x: Tensor, eps: float = TINY) -> Tensor:
    return f(x, torch.ones(4).double(), torch.zeros(4).double(), eps)


def _probe_norm(f: Any) -> object:
    """A large eps and a constant vector tell its place."""
    weight, bias = torch.rand(4).double(), torch.rand(4).double()
    return [f(_x(), weight, bias, 0.5), f(torch.full((1, 2, 4), 2.0).double(), weight, bias, 1e-5)]


def _probe_residual(f: Any) -> object:
    x, matrix = torch.randn(2, 3, 6) * 2 + 1, torch.randn(6, 6)

    def norm(t: Tensor) -> Tensor:
        return F.layer_norm(t, (6,))

    return [f(x, lambda t: t @ matrix, norm, placement) for placement in ("pre", "post")]


PROBES: dict[str, FunctionProbe] = {"layer_norm": _probe_norm, "residual": _probe_residual}


@CHECKS.about("layer_norm")
def shape(it: Learned) -> None:
    """As x."""
    found = _neutral(it["layer_norm"], _x())
    require(found.shape == (3, 5, 4), found=tuple(found.shape))


@CHECKS.about("layer_norm")
def one_token(it: Learned) -> None:
    """A token moves itself only."""
    x = _x()
    other = x.clone()
    other[0, 3] += 3 * torch.randn(4)
    change = _neutral(it["layer_norm"], other) - _neutral(it["layer_norm"], x)
    moved = change.abs().amax(-1) > 1e-9
    require(moved.sum() == 1 and bool(moved[0, 3]), moved=int(moved.sum()))


@CHECKS.about("layer_norm")
def mean_0(it: Learned) -> None:
    """Over the features."""
    mean = _neutral(it["layer_norm"], _x()).mean(-1).abs().max()
    require(mean < 1e-6, mean=f"{mean:.2f}")


@CHECKS.about("layer_norm")
def variance_1(it: Learned) -> None:
    """Divided by n."""
    variance = _neutral(it["layer_norm"], _x()).var(-1, unbiased=False)
    require((variance - 1).abs().max() < 1e-6, variance=f"{variance.mean():.2f}")


@CHECKS.about("layer_norm")
def weight_then_bias(it: Learned) -> None:
    """In this order."""
    x, weight, bias = _x(), torch.rand(4).double(), torch.rand(4).double()
    plain = _neutral(it["layer_norm"], x)
    require(close(it["layer_norm"](x, weight, bias, TINY), plain * weight + bias))


@CHECKS.about("layer_norm")
def constant_vector(it: Learned) -> None:
    """Variance 0 gives the bias."""
    bias = torch.rand(4).double()
    x = torch.full((1, 1, 4), 2.0).double()
    found = it["layer_norm"](x, torch.ones(4).double(), bias, 1e-5)[0, 0]
    require(close(found, bias), found=[round(n, 2) for n in found.tolist()])


@CHECKS.about("layer_norm")
def eps_under_the_root(it: Learned) -> None:
    """As torch has it."""
    x = _x()
    change = _neutral(it["layer_norm"], x, 0.5) - F.layer_norm(x, (4,), eps=0.5)
    require(change.abs().max() < 1e-5, change=f"{change.abs().max():.2g}")


def _silent(it: Learned, placement: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, norm(x), what a sublayer that returns zeros was given, and what came out."""
    x, given = torch.randn(2, 3, 6) * 2 + 1, []

    def norm(t: Tensor) -> Tensor:
        return F.layer_norm(t, (6,))

    def sublayer(t: Tensor) -> Tensor:
        given.append(t)
        return torch.zeros_like(t)

    out = it["residual"](x, sublayer, norm, placement)
    require(given, found="–")
    return x, norm(x), given[-1], out


def _name(t: Tensor, x: Tensor, normed: Tensor) -> str:
    if close(t, x):
        return "x"
    known = {"norm(x)": normed, "0": torch.zeros_like(x), "2x": 2 * x}
    return next((name for name, value in known.items() if close(t, value)), "…")


@CHECKS.about("residual")
def pre_silent(it: Learned) -> None:
    """A silent sublayer leaves x."""
    x, normed, _, out = _silent(it, "pre")
    require(close(out, x), found=_name(out, x, normed))


@CHECKS.about("residual")
def pre_given(it: Learned) -> None:
    """The sublayer gets norm(x)."""
    x, normed, given, _ = _silent(it, "pre")
    require(close(given, normed), found=_name(given, x, normed))


@CHECKS.about("residual")
def post_silent(it: Learned) -> None:
    """A silent sublayer gives norm(x)."""
    x, normed, _, out = _silent(it, "post")
    require(close(out, normed), found=_name(out, x, normed))


@CHECKS.about("residual")
def post_given(it: Learned) -> None:
    """The sublayer gets x."""
    x, normed, given, _ = _silent(it, "post")
    require(close(given, x), found=_name(given, x, normed))


@CHECKS.about("residual")
def input_unchanged(it: Learned) -> None:
    """`x += …` overwrites what the norm and the caller still need."""
    x = torch.randn(2, 3, 6)
    before = x.clone()
    for placement in ("pre", "post"):
        it["residual"](x, torch.ones_like, lambda t: t, placement)
        require(torch.equal(x, before), placement=placement)


@CHECKS.about("residual")
def added_once(it: Learned) -> None:
    """What the sublayer wrote is in the sum, once."""
    x, written = torch.randn(2, 3, 6), torch.randn(2, 3, 6)
    for placement in ("pre", "post"):
        # Without a norm both placements are x plus what was written.
        out = it["residual"](x, lambda _: written, lambda t: t, placement)
        change = (out - x - written).abs().max()
        require(change < 1e-5, placement=placement, change=f"{change:.2f}")


@CHECKS.about("residual")
def whole_formula(it: Learned) -> None:
    """A real norm around a sublayer that writes something."""
    x, matrix = torch.randn(2, 3, 6) * 2 + 1, torch.randn(6, 6)

    def norm(t: Tensor) -> Tensor:
        return F.layer_norm(t, (6,))

    for placement, wanted in (("pre", x + norm(x) @ matrix), ("post", norm(x + x @ matrix))):
        out = it["residual"](x, lambda t: t @ matrix, norm, placement)
        change = (out - wanted).abs().max()
        require(change < 1e-4, placement=placement, change=f"{change:.2f}")
