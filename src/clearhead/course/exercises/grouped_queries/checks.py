"""Checks of exercise 11."""

from typing import Any

import torch
from torch import Tensor

from clearhead.course.checking import (
    Checks,
    FunctionProbe,
    Learned,
    MissedError,
    close,
    distance,
    gradient_distance,
    require,
    require_unchanged,
)
from clearhead.course.exercises.grouped_queries import solution

CHECKS = Checks()
LLAMA_3 = (32, 4096, 32, 8, 8192, 2)


def _heads(n_heads: int, n_kv_heads: int, n_query: int = 3, n_key: int = 5) -> list[Tensor]:
    """Return random queries, keys and values for two texts."""
    kv = (2, n_kv_heads, n_key, 4)
    return [torch.randn(2, n_heads, n_query, 4), torch.randn(kv), torch.randn(kv)]


def _probe_attention(f: Any) -> object:
    return [f(*_heads(6, 2)), f(*_heads(4, 2, 5, 3)), f(*_heads(4, 1)), f(*_heads(4, 4, 4, 4))]


def _probe_bytes(f: Any) -> object:
    n_layers, length = torch.randint(2, 9, (2,)).tolist()
    return [f(n_layers, 96, 6, 3, length, 4), f(2, 128, 8, 2, 10, 2), f(*LLAMA_3)]


PROBES: dict[str, FunctionProbe] = {
    "grouped_attention": _probe_attention,
    "cache_bytes": _probe_bytes,
}


@CHECKS.about("grouped_attention")
def shape(it: Learned) -> None:
    """The output has the shape of the queries."""
    found = it["grouped_attention"](*_heads(6, 2))
    require(found.shape == (2, 6, 3, 4), found=tuple(found.shape))


@CHECKS.about("grouped_attention")
def one_head_each(it: Learned) -> None:
    """If there are as many key heads as query heads, the result is ordinary attention."""
    given = _heads(4, 4)
    change = distance(it["grouped_attention"](*given), solution.grouped_attention(*given))
    require(change < 1e-4, change=f"{change:.2g}")


@CHECKS.about("grouped_attention")
def who_sees_which_keys(it: Learned) -> None:
    """Key head 1 of 2 belongs to query heads 2 and 3 of 4."""
    queries, keys, values = _heads(4, 2)
    before = it["grouped_attention"](queries, keys, values)
    other = keys.clone()
    other[:, 1] += torch.randn_like(other[:, 1])
    moved = (it["grouped_attention"](queries, other, values) - before).abs().amax((0, 2, 3)) > 1e-5
    found = [i for i, change in enumerate(moved.tolist()) if change]
    require(found == [2, 3], found=", ".join(map(str, found)) or "–")


@CHECKS.about("grouped_attention")
def who_sees_which_values(it: Learned) -> None:
    """Value head 0 of 2 belongs to query heads 0, 1 and 2 of 6."""
    queries, keys, values = _heads(6, 2)
    before = it["grouped_attention"](queries, keys, values)
    other = values.clone()
    other[:, 0] += 1
    moved = (it["grouped_attention"](queries, keys, other) - before).abs().amax((0, 2, 3)) > 1e-5
    found = [i for i, change in enumerate(moved.tolist()) if change]
    require(found == [0, 1, 2], found=", ".join(map(str, found)) or "–")


@CHECKS.about("grouped_attention")
def one_head_for_all(it: Learned) -> None:
    """With one key head (multi-query attention), equal queries give equal results."""
    _, keys, values = _heads(4, 1)
    queries = torch.randn(2, 1, 3, 4).expand(2, 4, 3, 4)
    found = it["grouped_attention"](queries, keys, values)
    change = distance(found, found[:, :1].expand_as(found))
    require(change < 1e-5, change=f"{change:.2g}")


@CHECKS.about("grouped_attention")
def any_size(it: Learned) -> None:
    """The output agrees with the formula at other sizes."""
    for n_heads, n_kv_heads, n_query, n_key in ((8, 2, 1, 7), (6, 3, 4, 4), (2, 1, 5, 2)):
        given = _heads(n_heads, n_kv_heads, n_query, n_key)
        change = distance(it["grouped_attention"](*given), solution.grouped_attention(*given))
        require(change < 1e-4, heads=n_heads, kv=n_kv_heads, change=f"{change:.2g}")


@CHECKS.about("grouped_attention")
def large_scores(it: Learned) -> None:
    """Scores of several hundred give the right output, without a NaN."""
    queries, keys, values = _heads(4, 2)
    found = it["grouped_attention"](queries * 300, keys, values)
    wanted = solution.grouped_attention(queries * 300, keys, values)
    require(close(found, wanted, 1e-3), change=f"{distance(found, wanted):.2g}")


@CHECKS.about("grouped_attention")
def no_groups(it: Learned) -> None:
    """The answer refuses to share 3 key heads among 4 query heads."""
    for n_heads, n_kv_heads in ((4, 3), (6, 4), (2, 4)):
        try:
            it["grouped_attention"](*_heads(n_heads, n_kv_heads))
        except ValueError:
            continue
        except Exception as error:
            found = type(error).__name__
            raise MissedError(heads=n_heads, kv=n_kv_heads, found=found) from None
        raise MissedError(heads=n_heads, kv=n_kv_heads, found="–")


@CHECKS.about("grouped_attention")
def inputs_unchanged(it: Learned) -> None:
    """The inputs stay unchanged, because the cache is used again."""
    require_unchanged(it["grouped_attention"], *_heads(4, 2))


@CHECKS.about("grouped_attention")
def gradient(it: Learned) -> None:
    """A shared head gets the sum of its group's gradients."""
    change = gradient_distance(it["grouped_attention"], solution.grouped_attention, *_heads(4, 2))
    require(change < 1e-3, change=f"{change:.2g}")


@CHECKS.about("cache_bytes")
def llama_3(it: Learned) -> None:
    """The cache of Llama 3 8B for 8,192 tokens in bf16 takes one gibibyte."""
    found = it["cache_bytes"](*LLAMA_3)
    require(found == 2**30, found=f"{found:,}" if isinstance(found, int | float) else found)


@CHECKS.about("cache_bytes")
def any_model(it: Learned) -> None:
    """The number of bytes agrees with the formula for other models."""
    for numbers in ((1, 1, 1, 1, 1, 1), (2, 128, 8, 4, 10, 4), (12, 768, 12, 12, 1024, 2)):
        found, wanted = it["cache_bytes"](*numbers), solution.cache_bytes(*numbers)
        require(found == wanted, numbers=numbers, found=found, wanted=f"{wanted:,}")
