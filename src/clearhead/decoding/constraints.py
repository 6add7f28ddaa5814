"""Constrains the tokens that may come next."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.errors import ConfigError, InputError, setting
from clearhead.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class AllBut:
    """Every token except the given ones."""

    barred: frozenset[int]


NextTokens = Collection[int] | AllBut | None
"""The tokens that may follow. None: any token. An empty collection: the text ends here, with the
reason "constraint"."""
Constraint = Callable[[Sequence[int]], NextTokens]
"""A function that takes the new tokens so far (without the prompt) and returns the tokens that may
follow."""
Constraints = Constraint | Sequence[Constraint] | None
"""One constraint for all inputs, or one for each."""


def constraint_of(constraints: Constraints, number: int) -> Constraint | None:
    """Return the constraint of the input with this number."""
    return constraints[number] if isinstance(constraints, Sequence) else constraints


def allows_nothing(allowed: NextTokens) -> bool:
    """Tell whether no token is allowed, so that a text ends here."""
    return isinstance(allowed, Collection) and not allowed


def one_of(texts: Iterable[Sequence[int]], eos_id: int | None) -> Constraint:
    """Allow only these texts, given as tokens. Each is followed by the end token."""
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
    """Allow only these strings, tokenized as the tokenizer encodes them, and never only a part of
    one: each must fit into `max_new` tokens."""
    spelt = {text: tokenizer.encode(text) for text in strings}
    for text, tokens in spelt.items():
        if max_new is not None and len(tokens) > max_new:
            rule = f"is too few for the {len(tokens)} tokens of {text!r:.40}, which is allowed"
            raise ConfigError(
                "max_new", max_new, rule, f"try {setting('max_new', len(tokens) + 1)}"
            )
    return one_of(list(spelt.values()), tokenizer.eos_id)


def begin_with(prefix: Sequence[int], then: Constraint | None = None) -> Constraint:
    """Begin the text with these tokens. After them, any token may follow, or the tokens that `then`
    allows."""
    prefix = [int(token) for token in prefix]

    def constraint(new: Sequence[int]) -> NextTokens:
        if len(new) < len(prefix):
            return [prefix[len(new)]]
        return None if then is None else then(new[len(prefix) :])

    return constraint


def constrain(scores: Tensor, allowed: Sequence[NextTokens]) -> Tensor:
    """Replace the scores of tokens that a row does not allow by -inf. If any row is constrained,
    this changes a copy."""
    if all(ids is None for ids in allowed):
        return scores
    constrained = scores.clone()
    for row, ids in enumerate(allowed):
        if isinstance(ids, AllBut):
            constrained[row, sorted(ids.barred)] = -torch.inf
        elif ids is not None:
            index = torch.tensor(sorted(ids), dtype=torch.long, device=scores.device)
            if len(index) and not 0 <= int(index[0]) <= int(index[-1]) < scores.shape[1]:
                raise InputError(
                    f"the constraint allows tokens {int(index[0])} to {int(index[-1])}, but the "
                    f"vocabulary has {scores.shape[1]}; was it made with another tokenizer?"
                )
            constrained[row] = -torch.inf
            constrained[row, index] = scores[row, index]
    return constrained
