"""Wrong answers to exercise 16."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearhead.course.checking import Mistake
from clearhead.course.exercises.beam import checks, solution
from clearhead.course.exercises.beam.solution import BeamTokens

BeamText = tuple[BeamTokens, float]


def _of_each_text(scores: Tensor, log_probs: Tensor, width: int) -> Any:
    """The best token of each."""
    best, tokens = (scores[:, None] + log_probs).max(dim=1)
    order = best.argsort(descending=True)[:width]
    return best[order], order, tokens[order]


def _flat_index(scores: Tensor, log_probs: Tensor, width: int) -> Any:
    best, parents, tokens = solution.extend(scores, log_probs, width)
    return best, parents, parents * log_probs.shape[1] + tokens


def _swapped(scores: Tensor, log_probs: Tensor, width: int) -> Any:
    best, parents, tokens = solution.extend(scores, log_probs, width)
    return best, tokens, parents


def _probabilities(scores: Tensor, log_probs: Tensor, width: int) -> Any:
    return solution.extend(scores, log_probs.exp(), width)


def _without_scores(scores: Tensor, log_probs: Tensor, width: int) -> Any:
    return solution.extend(torch.zeros_like(scores), log_probs, width)


def _multiplied(scores: Tensor, log_probs: Tensor, width: int) -> Any:
    table = (scores[:, None] * log_probs).flatten()
    best, index = table.topk(min(width, len(table)))
    return best, index // log_probs.shape[1], index % log_probs.shape[1]


def _worst(scores: Tensor, log_probs: Tensor, width: int) -> Any:
    best, parents, tokens = solution.extend(-scores, -log_probs, width)
    return -best, parents, tokens


def _too_many(scores: Tensor, log_probs: Tensor, width: int) -> Any:
    table = (scores[:, None] + log_probs).flatten()
    best, index = table.topk(width)
    return best, index // log_probs.shape[1], index % log_probs.shape[1]


def _by_alpha(text: BeamText, alpha: float) -> float:
    return text[1] / max(len(text[0]), 1) ** alpha


def _build(
    finished_stay: bool = True,
    finished_grow: bool = False,
    stops: Callable[[list[BeamText], list[BeamText]], bool] = lambda ended, beam: False,
    copies: bool = False,
    apart: bool = False,
    always_stay: bool = False,
    remembered: bool = False,
    in_search: bool = False,
    ranked: Callable[[BeamText, float], float] = _by_alpha,
    returned: Callable[[BeamText, float], float] = lambda text, alpha: text[1],
    unfinished_lost: bool = False,
) -> Callable[..., BeamText]:
    """The search, with one step wrong."""

    def search(
        next_log_probs: Any, *, width: int, eos: int, max_new: int, alpha: float
    ) -> BeamText:
        beam: list[BeamText] = [((), 0.0)] * (width if copies else 1)
        done: list[BeamText] = []
        for _ in range(max_new):
            ended = [text for text in beam if text[0][-1:] == (eos,)]
            if stops(ended, beam) or (ended == beam and not finished_grow):
                break
            growing = beam if finished_grow else [text for text in beam if text not in ended]
            extended = [
                ((*tokens, token), score + log_prob)
                for tokens, score in growing
                for token, log_prob in enumerate(next_log_probs(tokens).tolist())
            ]
            rivals = extended + (ended if finished_stay and not finished_grow else [])
            if apart:  # finished texts leave the beam and free a place
                done += [text for text in extended if text[0][-1] == eos]
                rivals = [text for text in extended if text[0][-1] != eos]
            key = (lambda text: -_by_alpha(text, alpha)) if in_search else (lambda text: -text[1])
            beam = sorted(rivals, key=key)[:width]
            if always_stay:
                beam = (ended + sorted(extended, key=key))[:width]
            if remembered:
                done += [text for text in beam if text[0][-1] == eos]
        last = beam + done
        if unfinished_lost:
            last = [text for text in last if text[0][-1:] == (eos,)] or last
        best = max(last, key=lambda text: ranked(text, alpha))
        return best[0], returned(best, alpha)

    return search


def _probe_falls(f: Any) -> object:
    """Searches in which a finished text falls out of the beam."""
    models = [checks.falls_out(best_after) for best_after in (0.9, 0.34)]
    return [checks.plain(f(model, width=2, eos=0, max_new=3, alpha=0.0))[0] for model in models]


MISTAKES = [
    Mistake("best of each text", "extend", _of_each_text),
    Mistake("index as token", "extend", _flat_index),
    Mistake("parents and tokens swapped", "extend", _swapped),
    Mistake("probabilities added", "extend", _probabilities),
    Mistake("earlier scores forgotten", "extend", _without_scores),
    Mistake("scores multiplied", "extend", _multiplied),
    Mistake("the worst", "extend", _worst),
    Mistake(
        "more than there are",
        "extend",
        _too_many,
        probe=lambda f: f(torch.zeros(1), torch.randn(1, 3).log_softmax(1), 8),
    ),
    Mistake("finished texts dropped", "search", _build(finished_stay=False)),
    Mistake("finished texts extended", "search", _build(finished_grow=True)),
    Mistake("stops at the first end", "search", _build(stops=lambda ended, beam: bool(ended))),
    Mistake(
        "stops when the best is finished",
        "search",
        _build(stops=lambda ended, beam: beam[0] in ended),
    ),
    Mistake("begins with copies", "search", _build(copies=True)),
    Mistake("finished texts free their place", "search", _build(apart=True)),
    Mistake("finished texts always stay", "search", _build(always_stay=True), probe=_probe_falls),
    Mistake("finished texts come back", "search", _build(remembered=True), probe=_probe_falls),
    Mistake("alpha during the search", "search", _build(in_search=True)),
    Mistake("no alpha", "search", _build(ranked=lambda text, alpha: text[1])),
    Mistake(
        "times the length",
        "search",
        _build(ranked=lambda text, alpha: text[1] * max(len(text[0]), 1) ** alpha),
    ),
    Mistake(
        "end not counted",
        "search",
        _build(
            ranked=lambda text, alpha: (
                text[1] / max(len(text[0]) - (text[0][-1:] == (0,)), 1) ** alpha
            )
        ),
    ),
    Mistake("penalised score returned", "search", _build(returned=_by_alpha)),
    Mistake("only finished texts", "search", _build(unfinished_lost=True)),
]
