"""Wrong answers to exercise 18."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.course.checking import Mistake
from clearhead.course.exercises.induction import checks, solution

TextMaker = Callable[[int, int, int, int], Tensor]


def _texts(second: Any = lambda half, g: half, alike: bool = False) -> TextMaker:
    def repeated_texts(n_texts: int, period: int, vocab_size: int, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        rows = 1 if alike else n_texts
        half = torch.randint(vocab_size, (rows, period), generator=generator).expand(n_texts, -1)
        return torch.cat((half, second(half, (vocab_size, generator))), dim=1)

    return repeated_texts


def _new_half(half: Tensor, given: tuple[int, torch.Generator]) -> Tensor:
    return torch.randint(given[0], half.shape, generator=given[1])


def _each_token_twice(n_texts: int, period: int, vocab_size: int, seed: int) -> Tensor:
    half = solution.repeated_texts(n_texts, period, vocab_size, seed)[:, :period]
    return half.repeat_interleave(2, dim=1)


def _seeds_everybody(n_texts: int, period: int, vocab_size: int, seed: int) -> Tensor:
    torch.manual_seed(seed)
    half = torch.randint(vocab_size, (n_texts, period))
    return torch.cat((half, half), dim=1)


def _disturbs_others(repeated_texts: Any) -> bool:
    texts = repeated_texts(4, 6, 50, 3)
    return torch.equal(texts[:, :6], texts[:, 6:]) and checks.disturbs_others(repeated_texts)


def _ignores_seed(repeated_texts: Any) -> bool:
    one, two = (repeated_texts(4, 6, 50, seed) for seed in (3, 4))
    return torch.equal(one, two) and torch.equal(one[:, :6], one[:, 6:])


def _no_seed(n_texts: int, period: int, vocab_size: int, seed: int) -> Tensor:
    return solution.repeated_texts(n_texts, period, vocab_size, 0)


def _scores(after: int, begin: int = 1, power: str = "mean", turned: bool = False) -> Any:
    """The weight on key i − period + after, of the queries from begin · period on."""

    def induction_scores(weights: Tensor, period: int) -> Tensor:
        weights = weights.mT if turned else weights
        queries = torch.arange(begin * period + (0 if begin else period - 1), 2 * period)
        cells = weights[:, :, queries, (queries - period + after).clamp(max=2 * period - 1)]
        return cells.sum(dim=2).mean(dim=0) if power == "sum" else cells.mean(dim=(0, 2))

    return induction_scores


def _best_text(weights: Tensor, period: int) -> Tensor:
    queries = torch.arange(period, 2 * period)
    return weights[:, :, queries, queries - period + 1].mean(dim=2).amax(dim=0)


def _share_of_heads(weights: Tensor, period: int) -> Tensor:
    scores = solution.induction_scores(weights, period)
    return scores / scores.sum()


def _over_all_queries(weights: Tensor, period: int) -> Tensor:
    queries = torch.arange(period, 2 * period)
    cells = weights[:, :, queries, queries - period + 1]
    return cells.sum(dim=2).mean(dim=0) / (2 * period)


def _itself(weights: Tensor) -> Tensor:
    return weights.diagonal(dim1=2, dim2=3).mean(dim=(0, 2))


def _next(weights: Tensor) -> Tensor:
    return weights.diagonal(offset=1, dim1=2, dim2=3).mean(dim=(0, 2))


def _with_the_first(weights: Tensor) -> Tensor:
    return weights.diagonal(offset=-1, dim1=2, dim2=3).sum(dim=2).mean(dim=0) / weights.shape[2]


def _circuit(
    order: Callable[[int, int], bool] = lambda i, j: i < j,
    exceed: Callable[[float, float, float], bool] = lambda a, b, t: a > t and b > t,
    key: Callable[[float, float], float] = lambda a, b: a * b,
    turned: bool = False,
    only_best: bool = False,
    swapped: bool = False,
) -> Any:
    """The search, with one condition wrong."""

    def find_circuit(layers: Sequence[Tensor], period: int, threshold: float) -> Any:
        firsts = [solution.previous_scores(weights).tolist() for weights in layers]
        seconds = [solution.induction_scores(weights, period).tolist() for weights in layers]
        found = [
            (key(a, b), (h, i) if swapped else (i, h), (k, j) if swapped else (j, k))
            for i, row in enumerate(firsts)
            for h, a in enumerate(row)
            for j, other in enumerate(seconds)
            for k, b in enumerate(other)
            if order(i, j) and exceed(a, b, threshold)
        ]
        found = sorted(found, reverse=True)[: 1 if only_best else None]
        return [(two, one) if turned else (one, two) for _, one, two in found]

    return find_circuit


MISTAKES = [
    Mistake("second half is new", "repeated_texts", _texts(_new_half)),
    Mistake("second half backwards", "repeated_texts", _texts(lambda half, g: half.flip(1))),
    Mistake("all texts alike", "repeated_texts", _texts(alike=True)),
    Mistake("each token twice", "repeated_texts", _each_token_twice),
    Mistake("global seed", "repeated_texts", _seeds_everybody, fits=_disturbs_others),
    Mistake("seed ignored", "repeated_texts", _no_seed, fits=_ignores_seed),
    Mistake("at the same token", "induction_scores", _scores(after=0)),
    Mistake("one too far", "induction_scores", _scores(after=2)),
    Mistake("first half counted", "induction_scores", _scores(after=1, begin=0)),
    Mistake("sum instead of mean", "induction_scores", _scores(after=1, power="sum")),
    Mistake("query and key swapped", "induction_scores", _scores(after=1, turned=True)),
    Mistake("best text only", "induction_scores", _best_text),
    Mistake("share of the heads", "induction_scores", _share_of_heads),
    Mistake("divided by all queries", "induction_scores", _over_all_queries),
    Mistake("looks at itself", "previous_scores", _itself),
    Mistake("looks at the next", "previous_scores", _next),
    Mistake("first query counted", "previous_scores", _with_the_first),
    Mistake("any order of layers", "find_circuit", _circuit(order=lambda i, j: True)),
    Mistake("same layer too", "find_circuit", _circuit(order=lambda i, j: i <= j)),
    Mistake("neighbouring layers only", "find_circuit", _circuit(order=lambda i, j: j == i + 1)),
    Mistake("one of the two", "find_circuit", _circuit(exceed=lambda a, b, t: a > t or b > t)),
    Mistake("product exceeds", "find_circuit", _circuit(exceed=lambda a, b, t: a * b > t)),
    Mistake("weakest first", "find_circuit", _circuit(key=lambda a, b: -a * b)),
    Mistake("induction head first", "find_circuit", _circuit(turned=True)),
    Mistake("only the best pair", "find_circuit", _circuit(only_best=True)),
    Mistake("(head, layer)", "find_circuit", _circuit(swapped=True)),
]
