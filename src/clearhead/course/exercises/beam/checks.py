"""Checks of exercise 16. They find the right answer by scoring every possible text."""

import math
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import torch
from torch import Tensor

from clearhead.course.checking import (
    Checks,
    FunctionProbe,
    Learned,
    distance,
    require,
    require_unchanged,
)
from clearhead.course.exercises.beam.solution import BeamTokens

CHECKS = Checks()
EOS = 0
NextModel = Callable[[BeamTokens], Tensor]


def random_model(vocab: int = 5, ends: float = 0.0) -> NextModel:
    """Return a model whose log-probabilities depend on all tokens; `ends` makes the end token
    likelier."""
    seed = int(torch.randint(10**6, ()))

    @cache
    def next_log_probs(tokens: BeamTokens) -> Tensor:
        number = seed
        for token in tokens:
            number = (number * 31 + int(token) + 7) % (2**31)
        logits = 1.5 * torch.randn(vocab, generator=torch.Generator().manual_seed(number))
        logits[EOS] += ends
        return logits.log_softmax(0)

    # A list or a tensor of tokens will do.
    return lambda tokens: next_log_probs(tuple(map(int, tokens))).clone()


def table_model(table: dict[BeamTokens, list[float]]) -> NextModel:
    """Return a model that looks the probabilities up by the tokens so far. A text that is not in
    the table ends at once."""

    def next_log_probs(tokens: BeamTokens) -> Tensor:
        return torch.tensor(table.get(tuple(map(int, tokens)), [1.0, 0.0, 0.0])).log()

    return next_log_probs


def score_of(model: NextModel, tokens: BeamTokens) -> float:
    """Return the score of a text, computed token by token."""
    return sum(model(tokens[:i])[token].item() for i, token in enumerate(tokens))


def every_text(vocab: int, max_new: int) -> list[BeamTokens]:
    """Return every text that ends, and every text that is truncated at `max_new` tokens."""
    found: list[BeamTokens] = []
    for n in range(1, max_new + 1):
        for text in product(range(vocab), repeat=n):
            if EOS not in text[:-1] and (text[-1] == EOS or n == max_new):
                found.append(text)
    return found


def by_definition(model: NextModel, width: int, max_new: int, alpha: float) -> BeamTokens:
    """Search as the exercise describes it, without torch, by lists and sorting."""
    beam: list[tuple[float, BeamTokens]] = [(0.0, ())]
    for _ in range(max_new):
        rivals: list[tuple[float, BeamTokens]] = []
        for score, text in beam:
            if text[-1:] == (EOS,):
                rivals.append((score, text))
            else:
                found = model(text).tolist()
                rivals += [(score + found[token], (*text, token)) for token in range(len(found))]
        beam = sorted(rivals, reverse=True)[:width]
    return max(beam, key=lambda each: each[0] / len(each[1]) ** alpha)[1]


def plain(found: Any) -> tuple[BeamTokens, float]:
    """Convert the answer's result to Python numbers, whatever kind of numbers it has."""
    return tuple(int(token) for token in found[0]), float(found[1])


def _probe_extend(f: Any) -> object:
    scores = torch.randn(3).sort(descending=True).values
    return [x.double() for x in f(scores, torch.randn(3, 5).log_softmax(1), 4)]


def _probe_search(f: Any) -> object:
    found: list[object] = []
    for width, ends, alpha in product((1, 2, 3, 4), (0.0, 1.0, 2.0), (0.0, 0.7, 2.0)):
        model = random_model(ends=ends)
        tokens, score = plain(f(model, width=width, eos=EOS, max_new=4, alpha=alpha))
        found.append((list(tokens), round(score, 3)))
    return found


PROBES: dict[str, FunctionProbe] = {"extend": _probe_extend, "search": _probe_search}


@CHECKS.about("extend")
def tokens_of_the_vocabulary(it: Learned) -> None:
    """Token ids are below the size of the vocabulary, and parents below the number of texts."""
    _, parents, tokens = it["extend"](torch.zeros(3), torch.randn(3, 4).log_softmax(1), 6)
    found = int(max(parents.tolist())), int(max(tokens.tolist()))
    require(found[0] < 3 and found[1] < 4, parent=found[0], token=found[1])


@CHECKS.about("extend")
def best_of_all(it: Learned) -> None:
    """The result has the largest sums of the whole table, best first."""
    for n_texts, vocab, width in ((1, 6, 3), (3, 5, 4), (4, 3, 9)):
        scores, log_probs = -torch.rand(n_texts) * 3, torch.randn(n_texts, vocab).log_softmax(1)
        sums = [
            ((scores[b] + log_probs[b, v]).item(), b, v)
            for b in range(n_texts)
            for v in range(vocab)
        ]
        wanted = sorted(sums, reverse=True)[:width]
        found = it["extend"](scores.clone(), log_probs.clone(), width)
        pairs = list(zip(found[1].tolist(), found[2].tolist()))
        require(pairs == [(b, v) for _, b, v in wanted], found=pairs[:3],
                wanted=[(b, v) for _, b, v in wanted][:3])  # fmt: skip
        change = distance(found[0], torch.tensor([score for score, _, _ in wanted]))
        require(change < 1e-4, found=f"{float(found[0][0]):.3f}", wanted=f"{wanted[0][0]:.3f}")


@CHECKS.about("extend")
def fewer_than_asked(it: Learned) -> None:
    """If there are fewer candidates than asked for, all of them are returned."""
    found = [len(x) for x in it["extend"](torch.zeros(1), torch.randn(1, 3).log_softmax(1), 8)]
    require(found == [3, 3, 3], found=found)


@CHECKS.about("extend")
def inputs_unchanged(it: Learned) -> None:
    """The caller's scores and log-probabilities stay unchanged."""
    log_probs = torch.randn(2, 4).log_softmax(1)
    require_unchanged(lambda *given: it["extend"](*given, 3), torch.tensor([-1.0, -2.0]), log_probs)


def _search(it: Learned, model: NextModel, width: int, max_new: int = 4, alpha: float = 0.0) -> Any:
    return plain(it["search"](model, width=width, eos=EOS, max_new=max_new, alpha=alpha))


@CHECKS.about("search")
def the_example(it: Learned) -> None:
    """The search solves the example: A reaches 0.20, B reaches 0.36."""
    model = table_model({(): [0.1, 0.5, 0.4], (1,): [0.3, 0.3, 0.4], (2,): [0.05, 0.9, 0.05]})
    tokens, score = _search(it, model, width=2, max_new=2)
    holds = tokens == (2, 1) and abs(score - math.log(0.36)) < 1e-4
    require(holds, found=tokens, chance=f"{math.exp(score):.2f}")


@CHECKS.about("search")
def width_1_is_greedy(it: Learned) -> None:
    """A beam of width 1 always takes the likeliest token."""
    for _ in range(4):
        model, wanted = random_model(ends=1.0), ()
        while len(wanted) < 5 and wanted[-1:] != (EOS,):
            wanted = (*wanted, int(model(wanted).argmax()))
        found = _search(it, model, width=1, max_new=5)[0]
        require(found == wanted, found=found, wanted=wanted)


@CHECKS.about("search")
def finished_texts_stay(it: Learned) -> None:
    """A finished text can be the best: here the best text ends at once, while all other texts
    continue."""
    model = table_model({
        (): [0.4, 0.35, 0.25], (1,): [0.05, 0.5, 0.45], (2,): [0.05, 0.5, 0.45],
        (1, 1): [0.1, 0.5, 0.4], (2, 1): [0.1, 0.5, 0.4], (1, 2): [0.1, 0.5, 0.4],
    })  # fmt: skip
    tokens, _ = _search(it, model, width=2, max_new=3)
    require(tokens == (EOS,), found=tokens)


def falls_out(best_after: float) -> NextModel:
    """Return a model in which (0,) is finished with 0.2. The texts (1, 1) with 0.4 and (1, 2) with
    0.36 then beat it; (1, 2) is finished at the next step with the probability `best_after`."""
    rest = 1 - best_after
    return table_model({
        (): [0.2, 0.8, 0.0], (1,): [0.05, 0.5, 0.45], (1, 1): [0.3, 0.32, 0.38],
        (1, 2): [best_after, 0.49 * rest, 0.51 * rest],
    })  # fmt: skip


@CHECKS.about("search")
def finished_texts_fall_out(it: Learned) -> None:
    """Finished texts have no reserved place in the beam: they can fall out of it, and do not come
    back when the texts that beat them become unlikely."""
    for best_after, wanted in ((0.9, (1, 2, EOS)), (0.34, (1, 1, 2))):
        tokens, _ = _search(it, falls_out(best_after), width=2, max_new=3)
        require(tokens == wanted, found=tokens, wanted=wanted)


@CHECKS.about("search")
def does_not_stop_at_the_first(it: Learned) -> None:
    """The search does not stop at the first finished text: a short text is finished early, and a
    likelier text takes longer."""
    model = table_model({
        (): [0.3, 0.6, 0.1], (1,): [0.02, 0.96, 0.02], (1, 1): [0.95, 0.03, 0.02],
    })  # fmt: skip
    tokens, _ = _search(it, model, width=2)
    require(tokens == (1, 1, EOS), found=tokens)


@CHECKS.about("search")
def nothing_after_the_end(it: Learned) -> None:
    """No token follows the end token, and the model is never called with a finished text."""
    for _ in range(4):
        model, asked = random_model(ends=2.0), []

        def watched(
            tokens: BeamTokens, model: NextModel = model, asked: list[BeamTokens] = asked
        ) -> Tensor:
            asked.append(tuple(int(token) for token in tokens))
            return model(tokens)

        tokens, _ = _search(it, watched, width=3, max_new=5)
        require(EOS not in tokens[:-1], found=tokens)
        after = [text for text in asked if EOS in text]
        require(not after, found=after[0] if after else ())


@CHECKS.about("search")
def score_is_the_sum(it: Learned) -> None:
    """The returned score is the sum of the log-probabilities, rescored token by token; a length
    penalty does not change it."""
    for alpha in (0.0, 1.0):
        model = random_model(ends=1.0)
        tokens, score = _search(it, model, width=3, alpha=alpha)
        wanted = score_of(model, tokens)
        require(abs(score - wanted) < 1e-3, found=f"{score:.3f}", wanted=f"{wanted:.3f}")


@CHECKS.about("search")
def wide_enough_finds_the_best(it: Learned) -> None:
    """A beam as wide as there are texts finds the best one."""
    for _ in range(3):
        model = random_model(vocab=3, ends=0.5)
        wanted = max(every_text(3, 4), key=lambda text: score_of(model, text))
        found = _search(it, model, width=81, max_new=4)[0]
        require(found == wanted, found=found, wanted=wanted)


@CHECKS.about("search")
def alpha_prefers_longer(it: Learned) -> None:
    """With alpha = 1, a longer text of 0.6 · 0.8 · 0.8 = 0.384 wins over a text that reaches 0.4 at
    once."""
    model = table_model({
        (): [0.4, 0.6, 0.0], (1,): [0.1, 0.1, 0.8], (1, 2): [0.8, 0.1, 0.1],
    })  # fmt: skip
    for alpha, wanted in ((0.0, (EOS,)), (1.0, (1, 2, EOS))):
        found = _search(it, model, width=3, alpha=alpha)[0]
        require(found == wanted, alpha=alpha, found=found, wanted=wanted)


@CHECKS.about("search")
def alpha_at_the_end_only(it: Learned) -> None:
    """alpha counts only in the last choice; everything else is as the exercise describes it."""
    for width in (1, 2, 3, 4):
        for ends in (0.5, 1.5, 2.5):
            for alpha in (0.0, 0.7, 1.0):
                model = random_model(ends=ends)
                wanted = by_definition(model, width, 5, alpha)
                found = _search(it, model, width, 5, alpha)[0]
                require(found == wanted, width=width, alpha=alpha, found=found, wanted=wanted)
