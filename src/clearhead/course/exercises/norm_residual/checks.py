"""Checks of exercise 6. Changes are random vectors: a constant added to all features of a token
would be invisible behind the norm."""

from typing import Any

import torch
import torch.nn.functional as F
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
from clearhead.course.exercises.norm_residual import solution

CHECKS = Checks()
TINY = 1e-12


def _x() -> Tensor:
    return torch.randn(3, 5, 4, dtype=torch.float64) * 3 + 2


def _neutral(f: Any, x: Tensor, eps: float = TINY) -> Tensor:
    return f(x, torch.ones(4).double(), torch.zeros(4).double(), eps)


def _probe_norm(f: Any) -> object:
    """Call the answer with a large eps and a constant vector, which show where eps is added."""
    weight, bias = torch.rand(4).double(), torch.rand(4).double()
    return [f(_x(), weight, bias, 0.5), f(torch.full((1, 2, 4), 2.0).double(), weight, bias, 1e-5)]


def _norm(t: Tensor) -> Tensor:
    return F.layer_norm(t, (6,))


def _probe_residual(f: Any) -> object:
    x, matrix = torch.randn(2, 3, 6) * 2 + 1, torch.randn(6, 6)
    return [f(x, lambda t: t @ matrix, _norm, placement) for placement in ("pre", "post")]


def _far_away() -> Tensor:
    """Return vectors far from 0 in single precision: next to 5000², no digits are left for a
    variance of about 1."""
    return 5000 + torch.randn(2, 3, 4)


def probe_far_away(f: Any) -> object:
    """Round the answer's output, since every way of computing differs a little here."""
    return f(_far_away(), torch.ones(4), torch.zeros(4), 1e-5).float().round(decimals=1)


def _arguments() -> list[Tensor]:
    return [_x(), torch.rand(4).double(), torch.rand(4).double()]


def probe_gradients(f: Any) -> object:
    """Return the gradients with respect to x, weight and bias."""
    return gradients(lambda x, weight, bias: f(x, weight, bias, 0.1), *_arguments())


def probe_calls(f: Any) -> object:
    """Tell whether the sublayer runs more than once."""
    given: list[str] = []
    for placement in ("pre", "post"):
        f(torch.randn(2, 3, 6), lambda t, p=placement: given.append(p) or t, _norm, placement)
    return len(given) > len(set(given))


PROBES: dict[str, FunctionProbe] = {"layer_norm": _probe_norm, "residual": _probe_residual}


@CHECKS.about("layer_norm")
def shape(it: Learned) -> None:
    """The output has the shape of x."""
    found = _neutral(it["layer_norm"], _x())
    require(found.shape == (3, 5, 4), found=tuple(found.shape))


@CHECKS.about("layer_norm")
def arguments_unchanged(it: Learned) -> None:
    """The arguments stay unchanged: `x -= …` would overwrite what the residual connection still
    needs."""
    require_unchanged(lambda *given: it["layer_norm"](*given, 1e-5), *_arguments())


@CHECKS.about("layer_norm")
def one_token(it: Learned) -> None:
    """A change of one token changes only the output of that token."""
    x = _x()
    other = x.clone()
    other[0, 3] += 3 * torch.randn(4)
    change = _neutral(it["layer_norm"], other) - _neutral(it["layer_norm"], x)
    moved = change.abs().amax(-1) > 1e-9
    require(moved.sum() == 1 and bool(moved[0, 3]), moved=int(moved.sum()))


@CHECKS.about("layer_norm")
def mean_0(it: Learned) -> None:
    """The mean over the features is 0."""
    mean = _neutral(it["layer_norm"], _x()).mean(-1).abs().max()
    require(mean < 1e-6, mean=f"{mean:.2f}")


@CHECKS.about("layer_norm")
def variance_1(it: Learned) -> None:
    """The variance over the features is 1, if it is divided by n."""
    variance = _neutral(it["layer_norm"], _x()).var(-1, unbiased=False)
    require((variance - 1).abs().max() < 1e-6, variance=f"{variance.mean():.2f}")


@CHECKS.about("layer_norm")
def weight_then_bias(it: Learned) -> None:
    """The weight is applied first, then the bias."""
    x, weight, bias = _x(), torch.rand(4).double(), torch.rand(4).double()
    plain = _neutral(it["layer_norm"], x)
    require(close(it["layer_norm"](x, weight, bias, TINY), plain * weight + bias))


@CHECKS.about("layer_norm")
def constant_vector(it: Learned) -> None:
    """A vector without variance gives the bias."""
    bias = torch.rand(4).double()
    x = torch.full((1, 1, 4), 2.0).double()
    found = it["layer_norm"](x, torch.ones(4).double(), bias, 1e-5)[0, 0]
    require(close(found, bias), found=[round(n, 2) for n in found.tolist()])


@CHECKS.about("layer_norm")
def eps_under_the_root(it: Learned) -> None:
    """eps is added under the root, as in torch."""
    x = _x()
    change = _neutral(it["layer_norm"], x, 0.5) - F.layer_norm(x, (4,), eps=0.5)
    require(change.abs().max() < 1e-5, change=f"{change.abs().max():.2g}")


@CHECKS.about("layer_norm")
def any_axes(it: Learned) -> None:
    """x may have any number of axes before the features."""
    for size in ((5,), (3, 5), (2, 3, 4, 5)):
        x, weight, bias = scattered(torch.randn(size)), torch.rand(5), torch.rand(5)
        found = it["layer_norm"](x, weight, bias, 1e-5)
        change = distance(found, F.layer_norm(x, (5,), weight, bias, 1e-5))
        require(change < 1e-4, size=size, change=f"{change:.2g}")


@CHECKS.about("layer_norm")
def far_from_zero(it: Learned) -> None:
    """Adding 5000 to all features changes nothing."""
    x, weight, bias = _far_away(), torch.ones(4), torch.zeros(4)
    found = it["layer_norm"](x, weight, bias, 1e-5)
    change = distance(found, F.layer_norm(x.double(), (4,)))
    require(change < 0.02, change=f"{change:.2g}")


@CHECKS.about("layer_norm")
def gradient(it: Learned) -> None:
    """The gradient is right: the mean and the variance depend on x too."""
    change = gradient_distance(
        lambda x, weight, bias: it["layer_norm"](x, weight, bias, 0.1),
        lambda x, weight, bias: F.layer_norm(x, (4,), weight, bias, 0.1),
        *_arguments(),
    )
    require(change < 1e-4, change=f"{change:.2g}")


@CHECKS.about("layer_norm")
def gradient_of_a_constant_vector(it: Learned) -> None:
    """The gradient is finite where the variance is 0."""
    x, weight, bias = _arguments()
    x[0, 1] = 2.0
    found = gradients(lambda *given: it["layer_norm"](*given, 1e-5), x, weight, bias)
    bad = sum(int((~g.isfinite()).sum()) for g in found)
    require(not bad, bad=bad)


@CHECKS.about("residual")
def called_once(it: Learned) -> None:
    """The sublayer is called once: with dropout, two calls would give two different results."""
    for placement in ("pre", "post"):
        given: list[Tensor] = []
        it["residual"](
            torch.randn(2, 3, 6), lambda t, given=given: given.append(t) or t, _norm, placement
        )
        require(len(given) == 1, placement=placement, calls=len(given))


def _silent(it: Learned, placement: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return x, norm(x), what a sublayer that returns zeros was given, and the output."""
    x, given = torch.randn(2, 3, 6) * 2 + 1, []

    def sublayer(t: Tensor) -> Tensor:
        given.append(t)
        return torch.zeros_like(t)

    out = it["residual"](x, sublayer, _norm, placement)
    return x, _norm(x), given[-1], out


def _name(t: Tensor, x: Tensor, normed: Tensor) -> str:
    """Return the name of this tensor if it is a known one, or else its first numbers."""
    if close(t, x):
        return "x"
    known = {"norm(x)": normed, "0": torch.zeros_like(x), "2x": 2 * x}
    numbers = ", ".join(f"{n:.2f}" for n in t.flatten()[:3].tolist())
    return next((name for name, value in known.items() if close(t, value)), f"[{numbers}, …]")


@CHECKS.about("residual")
def pre_silent(it: Learned) -> None:
    """If a pre-norm sublayer returns zeros, the output is x."""
    x, normed, _, out = _silent(it, "pre")
    require(close(out, x), found=_name(out, x, normed))


@CHECKS.about("residual")
def pre_given(it: Learned) -> None:
    """A pre-norm sublayer gets norm(x)."""
    x, normed, given, _ = _silent(it, "pre")
    require(close(given, normed), found=_name(given, x, normed))


@CHECKS.about("residual")
def post_silent(it: Learned) -> None:
    """If a post-norm sublayer returns zeros, the output is norm(x)."""
    x, normed, _, out = _silent(it, "post")
    require(close(out, normed), found=_name(out, x, normed))


@CHECKS.about("residual")
def post_given(it: Learned) -> None:
    """A post-norm sublayer gets x."""
    x, normed, given, _ = _silent(it, "post")
    require(close(given, x), found=_name(given, x, normed))


@CHECKS.about("residual")
def input_unchanged(it: Learned) -> None:
    """The input stays unchanged: `x += …` would overwrite what the norm and the caller still
    need."""
    x = torch.randn(2, 3, 6)
    before = x.clone()
    for placement in ("pre", "post"):
        it["residual"](x, torch.ones_like, lambda t: t, placement)
        require(torch.equal(x, before), placement=placement)


@CHECKS.about("residual")
def added_once(it: Learned) -> None:
    """What the sublayer returns is added once."""
    x, written = torch.randn(2, 3, 6), torch.randn(2, 3, 6)
    for placement in ("pre", "post"):
        # Without a norm both placements are x plus what was written.
        out = it["residual"](x, lambda _: written, lambda t: t, placement)
        change = (out - x - written).abs().max()
        require(change < 1e-5, placement=placement, change=f"{change:.2f}")


@CHECKS.about("residual")
def whole_formula(it: Learned) -> None:
    """With a real norm and a sublayer that returns something, the output and the gradient of x are
    right."""
    x, matrix = (torch.randn(2, 3, 6) * 2 + 1).double(), torch.randn(6, 6).double()
    for placement in ("pre", "post"):

        def join(f: Any, x: Tensor, placement: str = placement) -> Tensor:
            return f(x, lambda t: t @ matrix, _norm, placement)

        change = distance(join(it["residual"], x), join(solution.residual, x))
        slope = gradient_distance(
            lambda x: join(it["residual"], x), lambda x: join(solution.residual, x), x
        )
        require(
            change < 1e-4 and slope < 1e-4,
            placement=placement,
            change=f"{change:.2f}",
            slope=f"{slope:.2g}",
        )


@CHECKS.about("residual")
def placement_by_its_letters(it: Learned) -> None:
    """The placement is compared with ==, not with `is`: a word that was read from a file equals the
    word in the code, but is another object."""
    x = torch.randn(2, 3, 6)
    for placement in ("pre", "post"):
        read = "".join(list(placement))
        found = it["residual"](x, torch.sin, _norm, read)
        require(close(found, solution.residual(x, torch.sin, _norm, read)), placement=placement)
