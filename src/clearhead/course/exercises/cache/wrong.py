"""Wrong answers to exercise 15."""

import math
from typing import Any

import torch
from torch import Tensor

from clearhead.course.checking import Mistake, combined
from clearhead.course.earlier import causal, masked_weights, merge_heads, split_heads
from clearhead.course.exercises.cache import checks
from clearhead.course.exercises.cache.solution import CachedAttention


def _appended(old: Tensor | None, new: Tensor) -> Tensor:
    return new if old is None else torch.cat((old, new), dim=2)


def _put_first(old: Tensor | None, new: Tensor) -> Tensor:
    return new if old is None else torch.cat((new, old), dim=2)


def _top_left(n_new: int, n_all: int) -> Tensor:
    return torch.ones(n_new, n_all, dtype=torch.bool).tril()


def _everything(n_new: int, n_all: int) -> Tensor:
    return torch.ones(n_new, n_all, dtype=torch.bool)


def _not_itself(n_new: int, n_all: int) -> Tensor:
    return causal(n_new, n_all) & ~torch.eye(n_all, dtype=torch.bool)[-n_new:]


def _build(
    kept: Any = (_appended, _appended),
    mask: Any = causal,
    scale: Any = math.sqrt,
    output: bool = True,
) -> type[CachedAttention]:
    """The steps, with one or two of them wrong."""

    class Wrong(CachedAttention):
        def __call__(self, x: Tensor) -> Tensor:
            layers = self.attention
            queries, keys, values = (
                split_heads(layer(x), layers.n_heads)
                for layer in (layers.query, layers.key, layers.value)
            )
            self.keys, self.values = kept[0](self.keys, keys), kept[1](self.values, values)
            assert self.keys is not None and self.values is not None
            scores = queries @ self.keys.transpose(-2, -1) / scale(queries.shape[-1])
            weights = masked_weights(scores, mask(x.shape[1], self.keys.shape[2]))
            merged = merge_heads(weights @ self.values)
            return layers.output(merged) if output else merged

    return Wrong


class _KeysOnly(CachedAttention):
    def reorder(self, rows: Tensor) -> None:
        if self.keys is not None:
            self.keys = self.keys[rows]


class _ValuesOnly(CachedAttention):
    def reorder(self, rows: Tensor) -> None:
        if self.values is not None:
            self.values = self.values[rows]


class _NotReordered(CachedAttention):
    def reorder(self, rows: Tensor) -> None:
        return None


class _TheWrongWay(CachedAttention):
    """Row i goes to rows[i]."""

    def reorder(self, rows: Tensor) -> None:
        if self.keys is not None and self.values is not None:
            back = torch.zeros_like(rows)
            back[rows.clamp(max=len(rows) - 1)] = torch.arange(len(rows))
            self.keys, self.values = self.keys[back], self.values[back]


class _Recomputes(CachedAttention):
    """Keeps the tokens and computes everything anew."""

    def __call__(self, x: Tensor) -> Tensor:
        self.keys = x if self.keys is None else torch.cat((self.keys, x), dim=1)
        n = self.keys.shape[1]
        return self.attention(self.keys, self.keys, causal(n, n)[None])[:, -x.shape[1] :]

    def reorder(self, rows: Tensor) -> None:
        if self.keys is not None:
            self.keys = self.keys[rows]


class _Shared(CachedAttention):
    """One cache for all: it is kept on the layers."""

    def __call__(self, x: Tensor) -> Tensor:
        store: Any = self.attention
        self.keys, self.values = getattr(store, "kept", (None, None))
        result = super().__call__(x)
        store.kept = self.keys, self.values
        return result

    def reorder(self, rows: Tensor) -> None:
        store: Any = self.attention
        if hasattr(store, "kept"):
            store.kept = tuple(each[rows] for each in store.kept)


def _computes_again(kind: Any) -> bool:
    seen = checks.seen_tokens(kind)
    return seen["key"] > 6 and seen["value"] > 6


def _is_shared(kind: Any) -> bool:
    """The second cache is wrong, and alone it would be right."""
    attention, x = checks.layers(), torch.randn(1, 4, checks.D_MODEL)
    with torch.no_grad():
        alone = checks.in_pieces(kind, attention, x, (2, 2))
        right = checks.distance(alone, checks.whole_pass(attention, x)) < 1e-4
    return right and checks.two_caches(kind) > 1e-3


WRONG_STEPS: dict[str, dict[str, Any]] = {
    "kept": {
        "overwritten": (lambda old, new: new, lambda old, new: new),
        "values put first": (_appended, _put_first),
    },
    "mask": {"top left": _top_left, "no mask": _everything, "not itself": _not_itself},
    "scale": {
        "no scale": lambda d: 1.0,
        "√d_model": lambda d: math.sqrt(d * checks.N_HEADS),
    },
}
CACHE = "CachedAttention"
MISTAKES = [
    *combined(CACHE, _build, WRONG_STEPS),
    Mistake("put first", CACHE, _build(kept=(_put_first, _put_first))),
    Mistake("no output layer", CACHE, _build(output=False)),
    Mistake("keys only reordered", CACHE, _KeysOnly),
    Mistake("values only reordered", CACHE, _ValuesOnly),
    Mistake("not reordered", CACHE, _NotReordered),
    Mistake("reordered the wrong way", CACHE, _TheWrongWay),
    Mistake("everything computed again", CACHE, _Recomputes, fits=_computes_again),
    Mistake("one cache for all", CACHE, _Shared, fits=_is_shared),
]
