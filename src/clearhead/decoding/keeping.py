"""A translation keeps every span of its source: decoding admits the reserved token of each exactly
once, and the end only behind the last of them. It holds for any model and any strategy, since what
is not admitted has no probability."""

from collections.abc import Sequence
from functools import lru_cache

from clearhead.decoding.constraints import AllBut, Constraint, NextTokens
from clearhead.localise.masking import MaskedText
from clearhead.localise.spans import SpanRules, signs_of
from clearhead.text.pieces import tokens_with
from clearhead.text.tokenizer import Tokenizer

SIGNS = signs_of(SpanRules("always", "always", "always"))


@lru_cache(maxsize=8)
def _tokens_with_signs(tokenizer: Tokenizer) -> dict[str, frozenset[int]]:
    return tokens_with(tokenizer, SIGNS)


def can_keep(text: MaskedText, tokenizer: Tokenizer, max_new: int) -> bool:
    """Whether there is a reserved token for each span, and space for all of them and the end."""
    n_spans = len(text.spans)
    return not n_spans or (n_spans <= len(tokenizer.placeholder_ids) and n_spans < max_new)


def keep_spans(text: MaskedText, tokenizer: Tokenizer, max_new: int) -> Constraint:
    """The constraint of a translation of this text, in at most `max_new` tokens."""
    assert can_keep(text, tokenizer, max_new)
    reserved = tokenizer.placeholder_ids
    numbers = {index: number for number, index in enumerate(reserved)}
    with_signs = _tokens_with_signs(tokenizer)
    never = frozenset(reserved).union(*(with_signs[sign] for sign in text.unused_signs))

    def constraint(new: Sequence[int]) -> NextTokens:
        used = [numbers[token] for token in new if token in numbers]
        n_missing = len(text.spans) - len(used)
        admitted = {reserved[number] for number in next_spans(text, used)}
        if n_missing and max_new - len(new) <= n_missing + 1:
            return admitted
        return AllBut((never - admitted) | ({tokenizer.eos_id} if n_missing else frozenset()))

    return constraint


def next_spans(text: MaskedText, used: Sequence[int]) -> list[int]:
    """The spans that may follow those: each once, tags nested, unnumbered arguments in their order.
    While one is missing, at least one may follow."""
    closing = {closer: opener for opener, closer in text.tags.items()}
    opened: list[int] = []
    for number in used:
        if number in text.tags:
            opened.append(number)
        elif number in closing:
            opened.pop()
    waiting = [number for number in text.in_order if number not in used]
    return [
        number
        for number in range(len(text.spans))
        if number not in used
        and (number not in closing or (opened and closing[number] == opened[-1]))
        and (number not in waiting or number == waiting[0])
    ]


def keeps_spans(text: MaskedText, tokenizer: Tokenizer, tokens: Sequence[int]) -> bool:
    """Whether the tokens of a translation have each span once, in a place where it may stand: for
    engines that take no constraint."""
    numbers = {index: number for number, index in enumerate(tokenizer.placeholder_ids)}
    used = [numbers[token] for token in tokens if token in numbers]
    return len(used) == len(text.spans) and all(
        number in next_spans(text, used[:place]) for place, number in enumerate(used)
    )
