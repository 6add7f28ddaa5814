"""Checks of exercise 15. The outputs are compared with those of torch's own attention over the
whole text, so that it does not matter how the answer stores its cache."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.course.checking import (
    Checks,
    FunctionProbe,
    Learned,
    distance,
    require,
    require_unchanged,
)
from clearhead.course.exercises.cross_attention.solution import CrossAttention

CHECKS = Checks()
N_HEADS, D_MODEL = 3, 12


def layers() -> Any:
    """Return an attention with random weights and biases."""
    attention = CrossAttention(D_MODEL, N_HEADS)
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return attention


def whole_pass(attention: Any, x: Tensor) -> Tensor:
    """Return causal attention over all tokens at once, computed by torch."""
    q, k, v = (
        layer(x).unflatten(-1, (N_HEADS, -1)).transpose(1, 2)
        for layer in (attention.query, attention.key, attention.value)
    )
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return attention.output(mixed.transpose(1, 2).flatten(2))


def in_pieces(kind: Any, attention: Any, x: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Feed the tokens to a new cache, in pieces of the given sizes."""
    cached = kind(attention)
    return torch.cat([cached(piece) for piece in x.split(list(sizes), dim=1)], dim=1)


@torch.no_grad()
def _probe(kind: Any) -> object:
    attention, x = layers(), torch.randn(3, 6, D_MODEL)
    found = [in_pieces(kind, attention, x, sizes) for sizes in ((1,) * 6, (3, 1, 2))]
    cached = kind(attention)
    cached(x)
    cached.reorder(torch.tensor([2, 0, 1]))
    return [*found, cached(torch.randn(3, 2, D_MODEL))]


def seen_tokens(kind: Any) -> dict[str, int]:
    """Return how many tokens each layer has processed after six calls with one token each."""
    attention, seen = layers(), {"query": 0, "key": 0, "value": 0, "output": 0}

    def note(name: str) -> Any:
        def hook(_: Any, inputs: tuple[Tensor, ...]) -> None:
            seen[name] += inputs[0].numel() // D_MODEL

        return hook

    for name in seen:
        getattr(attention, name).register_forward_pre_hook(note(name))
    with torch.no_grad():
        in_pieces(kind, attention, torch.randn(1, 6, D_MODEL), (1,) * 6)
    return seen


def two_caches(kind: Any) -> float:
    """Return how far the outputs of a second cache over the same layers are from the right ones."""
    attention, (one, two) = layers(), torch.randn(2, 1, 4, D_MODEL)
    with torch.no_grad():
        first, second = kind(attention), kind(attention)
        first(one[:, :2])
        found = torch.cat((second(two[:, :3]), second(two[:, 3:])), dim=1)
        return distance(found, whole_pass(attention, two))


PROBES: dict[str, FunctionProbe] = {"CachedAttention": _probe}


@torch.no_grad()
def _compare(it: Learned, sizes: tuple[int, ...], batch: int = 2) -> None:
    attention, x = layers(), torch.randn(batch, sum(sizes), D_MODEL)
    found, wanted = in_pieces(it["CachedAttention"], attention, x, sizes), whole_pass(attention, x)
    if found.shape == wanted.shape:
        off = (found - wanted).abs().amax((0, 2)) > 1e-4
        wrong = [i for i, far in enumerate(off.tolist()) if far]
    else:
        wrong = list(found.shape)
    require(not wrong and distance(found, wanted) < 1e-4, sizes=sizes,
            wrong=", ".join(map(str, wrong[:6])) + ", …" * (len(wrong) > 6) or "NaN")  # fmt: skip


@CHECKS.about("CachedAttention")
def shape(it: Learned) -> None:
    """The output has the shape of the new tokens."""
    cached = it["CachedAttention"](layers())
    found = [tuple(cached(torch.randn(2, n, D_MODEL)).shape) for n in (3, 1)]
    require(found == [(2, 3, D_MODEL), (2, 1, D_MODEL)], found=found)


@CHECKS.about("CachedAttention")
def one_call(it: Learned) -> None:
    """If all tokens arrive at once, the result is ordinary causal attention."""
    _compare(it, (5,))


@CHECKS.about("CachedAttention")
def one_by_one(it: Learned) -> None:
    """If tokens arrive one by one, as in generation, the result is the same."""
    _compare(it, (1, 1, 1, 1, 1, 1))


@CHECKS.about("CachedAttention")
def pieces(it: Learned) -> None:
    """If a prompt is followed by more tokens, no token is forgotten, however many there are."""
    for sizes in ((3, 3), (1, 2, 3), (4, 1, 1), (2, 5), (200, 1, 99, 1)):
        _compare(it, sizes)


@CHECKS.about("CachedAttention")
def any_batch(it: Learned) -> None:
    """Batches of any size work, including one of a single text and one with as many texts as
    heads."""
    for batch in (1, 3, 5):
        _compare(it, (2, 1, 2), batch)


@CHECKS.about("CachedAttention")
def each_token_once(it: Learned) -> None:
    """The model processes each token once: that is the purpose of a cache."""
    seen = seen_tokens(it["CachedAttention"])
    over = [f"{name} {n}" for name, n in seen.items() if n != 6]
    require(not over, seen=", ".join(over))


@CHECKS.about("CachedAttention")
def caches_apart(it: Learned) -> None:
    """Two caches for two texts do not affect each other."""
    change = two_caches(it["CachedAttention"])
    require(change < 1e-4, change=f"{change:.2g}")


@CHECKS.about("CachedAttention")
def input_unchanged(it: Learned) -> None:
    """The caller's tensor stays unchanged."""
    with torch.no_grad():
        require_unchanged(it["CachedAttention"](layers()), torch.randn(2, 3, D_MODEL))


@CHECKS.about("CachedAttention")
@torch.no_grad()
def reordered(it: Learned) -> None:
    """After a reordering, each row continues the text that was moved there."""
    attention, x, more = layers(), torch.randn(3, 4, D_MODEL), torch.randn(5, 2, D_MODEL)
    for rows in ([2, 0, 1], [0, 0, 2], [1], [2, 2, 0, 1, 1]):
        cached = it["CachedAttention"](attention)
        cached(x)
        cached.reorder(torch.tensor(rows))
        new = more[: len(rows)]
        wanted = whole_pass(attention, torch.cat((x[rows], new), dim=1))[:, 4:]
        change = distance(cached(new), wanted)
        require(change < 1e-4, rows=rows, change=f"{change:.2g}")


@CHECKS.about("CachedAttention")
@torch.no_grad()
def reordered_again(it: Learned) -> None:
    """The cache can be reordered at every step of a search, and before the first call."""
    attention, x = layers(), torch.randn(2, 3, D_MODEL)
    cached = it["CachedAttention"](attention)
    cached.reorder(torch.tensor([1, 0]))
    texts = x[:, :1]
    cached(texts)
    for step, rows in ((1, [1, 1]), (2, [1, 0])):
        cached.reorder(torch.tensor(rows))
        texts = torch.cat((texts[rows], x[:, step : step + 1]), dim=1)
        change = distance(cached(x[:, step : step + 1]), whole_pass(attention, texts)[:, -1:])
        require(change < 1e-4, step=step, change=f"{change:.2g}")


@CHECKS.about("CachedAttention")
@torch.no_grad()
def reordered_twice(it: Learned) -> None:
    """The cache can be reordered twice before the next token; the second time, `rows` counts the
    rows of the reordered cache."""
    attention, x, new = layers(), torch.randn(3, 2, D_MODEL), torch.randn(2, 1, D_MODEL)
    cached = it["CachedAttention"](attention)
    cached(x)
    cached.reorder(torch.tensor([2, 0, 1]))
    cached.reorder(torch.tensor([1, 0]))
    wanted = whole_pass(attention, torch.cat((x[[0, 2]], new), dim=1))[:, 2:]
    change = distance(cached(new), wanted)
    require(change < 1e-4, change=f"{change:.2g}")
