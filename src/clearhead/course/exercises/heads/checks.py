"""Checks of exercise 3."""

import torch
from torch import Tensor

from clearhead.course.checking import (
    Checks,
    FunctionProbe,
    Learned,
    close,
    gradient_distance,
    require,
    scattered,
)
from clearhead.course.exercises.heads import solution

CHECKS = Checks()
# batch, heads, length, d_head: some of them equal, so that a guess from the sizes fails.
SIZES = ((3, 1, 4, 5), (1, 4, 4, 3), (2, 3, 3, 3), (4, 2, 1, 6), (1, 6, 2, 1))
PROBES: dict[str, FunctionProbe] = {
    "split_heads": lambda f: f(torch.randn(2, 5, 12), 3),
    "merge_heads": lambda f: f(torch.randn(2, 3, 5, 4)),
}


def _kinds(x: Tensor) -> dict[str, Tensor]:
    """Return the same numbers in another memory layout, and numbers that single precision would
    round."""
    return {
        "float32, not contiguous": scattered(x),
        "float32, expanded": x[:1].expand_as(x),
        "float64": x.double() + torch.pi,
        "int64": torch.arange(x.numel()).reshape(x.shape) + 2**40,
    }


@CHECKS.about("split_heads")
def shape(it: Learned) -> None:
    """The shape of the heads is (batch, heads, length, d_head)."""
    found = it["split_heads"](torch.randn(2, 5, 12), 3)
    require(found.shape == (2, 3, 5, 4), found=tuple(found.shape))


@CHECKS.about("split_heads")
def token_stays_in_its_row(it: Learned) -> None:
    """A change of token t changes only row t of the heads."""
    x = torch.randn(2, 5, 12)
    other = x.clone()
    other[:, 3] += torch.randn(2, 12)
    moved = (it["split_heads"](other, 3) != it["split_heads"](x, 3)).flatten(0, 1)
    rows = moved.any(-1).any(0).nonzero().flatten().tolist()
    require(rows == [3], rows=", ".join(map(str, rows)))


@CHECKS.about("split_heads")
def columns_stay_in_their_head(it: Learned) -> None:
    """Columns 4 to 7 of 12 are head 1 of 3."""
    x = torch.randn(2, 5, 12)
    other = x.clone()
    other[:, :, 4:8] += torch.randn(2, 5, 4)
    moved = it["split_heads"](other, 3) != it["split_heads"](x, 3)
    heads = moved.any(-1).any(-1).any(0).nonzero().flatten().tolist()
    require(heads == [1], heads=", ".join(map(str, heads)))


@CHECKS.about("split_heads")
def any_size(it: Learned) -> None:
    """At any size, every number and its gradient arrive in the right place."""
    for batch, heads, length, d_head in SIZES:
        x = torch.randn(batch, length, heads * d_head)
        change = gradient_distance(
            lambda t, n=heads: it["split_heads"](t, n),
            lambda t, n=heads: solution.split_heads(t, n),
            x,
        )
        right = close(it["split_heads"](x, heads), solution.split_heads(x, heads), 0)
        require(right and change == 0, size=tuple(x.shape), heads=heads)


@CHECKS.about("split_heads")
def any_kind(it: Learned) -> None:
    """The numbers are moved, not changed."""
    for kind, x in _kinds(torch.randn(2, 5, 12)).items():
        found, right = it["split_heads"](x, 3), solution.split_heads(x, 3)
        holds = found.dtype == right.dtype and torch.equal(found, right)
        require(holds, kind=kind, found=found.dtype)


@CHECKS.about("merge_heads")
def round_trip(it: Learned) -> None:
    """Merge undoes split, and split undoes merge."""
    x, y = torch.randn(2, 5, 12), torch.randn(2, 3, 5, 4)
    merged = it["merge_heads"](y)
    require(merged.shape == (2, 5, 12), found=tuple(merged.shape))
    there_and_back = it["merge_heads"](it["split_heads"](x, 3))
    require(close(there_and_back, x), found=tuple(there_and_back.shape))
    require(close(it["split_heads"](merged, 3), y), found=tuple(merged.shape))


@CHECKS.about("merge_heads")
def merged_at_any_size(it: Learned) -> None:
    """At any size, merging puts every number and its gradient in the right place."""
    for size in SIZES:
        x = torch.randn(size)
        change = gradient_distance(it["merge_heads"], solution.merge_heads, x)
        right = close(it["merge_heads"](x), solution.merge_heads(x), 0)
        require(right and change == 0, size=tuple(x.shape))


@CHECKS.about("merge_heads")
def merged_of_any_kind(it: Learned) -> None:
    """Merging moves the numbers and does not change them."""
    for kind, x in _kinds(torch.randn(2, 3, 5, 4)).items():
        found, right = it["merge_heads"](x), solution.merge_heads(x)
        holds = found.dtype == right.dtype and torch.equal(found, right)
        require(holds, kind=kind, found=found.dtype)
