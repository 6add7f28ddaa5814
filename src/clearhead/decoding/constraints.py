"""Which tokens may come next."""

from collections.abc import Callable, Collection, Iterable, Sequence

import torch
from torch import Tensor

from clearhead.errors import ConfigError, InputError
from clearhead.text.tokenizer import Tokenizer

Constraint = Callable[[Sequence[int]], Collection[int] | None]
"""Given the new tokens so far (without the prompt), the tokens that may follow. None: any. An empty
collection: the text ends here, with the reason "constraint"."""


def one_of(texts: Iterable[Sequence[int]], eos_id: int | None) -> Constraint:
    """Only these texts, as tokens, each followed by the end."""
    ends: dict[tuple[int, ...], set[int]] = {}
    for text in texts:
        whole = [*text] if eos_id is None else [*text, eos_id]
        for n, token in enumerate(whole):
            ends.setdefault(tuple(whole[:n]), set()).add(token)
    if not ends:
        raise InputError("the constraint allows no text; give at least one that is not empty")
    return lambda new: sorted(ends.get(tuple(new), ()))


def one_of_strings(
    strings: Iterable[str], tokenizer: Tokenizer, max_new: int | None = None
) -> Constraint:
    """Only these strings, spelt as the tokenizer spells them, and whole: each has to fit into
    `max_new` tokens."""
    spelt = {text: tokenizer.encode(text) for text in strings}
    for text, tokens in spelt.items():
        if max_new is not None and len(tokens) > max_new:
            rule = f"is too few for the {len(tokens)} tokens of {text!r:.40}, which is allowed"
            raise ConfigError("max_new", max_new, rule, f"try max_new={len(tokens) + 1}")
    return one_of(list(spelt.values()), tokenizer.eos_id)


def begin_with(prefix: Sequence[int], then: Constraint | None = None) -> Constraint:
    """The text begins with these tokens; then anything, or what `then` allows behind them."""
    prefix = [int(token) for token in prefix]

    def constraint(new: Sequence[int]) -> Collection[int] | None:
        if len(new) < len(prefix):
            return [prefix[len(new)]]
        return None if then is None else then(new[len(prefix) :])

    return constraint


def constrain(scores: Tensor, allowed: Sequence[Collection[int] | None]) -> Tensor:
    """-inf for the tokens that a row does not allow: a copy, where any row is constrained."""
    if all(ids is None for ids in allowed):
        return scores
    constrained = scores.clone()
    for row, ids in enumerate(allowed):
        if ids is not None:
            index = torch.tensor(sorted(ids), dtype=torch.long, device=scores.device)
            if len(index) and not 0 <= int(index[0]) <= int(index[-1]) < scores.shape[1]:
                raise InputError(
                    f"the constraint allows tokens {int(index[0])} to {int(index[-1])}, but the "
                    f"vocabulary has {scores.shape[1]}; was it made with another tokenizer?"
                )
            constrained[row] = -torch.inf
            constrained[row, index] = scores[row, index]
    return constrained
