"""Keeps every span of the source in its translation. Decoding allows the reserved token of each
span exactly once, and the end only after the last of them; the same holds for words that the
translation has to use. This works for any model and any strategy, since tokens that are not allowed
have no probability."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from clearhead.decoding.constraints import AllBut, NextTokens
from clearhead.localise.masking import MaskedText
from clearhead.localise.spans import SpanRules, signs_of
from clearhead.text.pieces import tokens_with
from clearhead.text.tokenizer import Tokenizer

SIGNS = signs_of(SpanRules("always", "always", "always"))


@lru_cache(maxsize=8)
def _tokens_with_signs(tokenizer: Tokenizer) -> dict[str, frozenset[int]]:
    return tokens_with(tokenizer, SIGNS)


def can_keep(
    text: MaskedText | None, tokenizer: Tokenizer, max_new: int, runs: Sequence[Sequence[int]] = ()
) -> bool:
    """Tell whether there is a reserved token for each span, and space for all of them, for the
    runs, and for the end."""
    n_spans = 0 if text is None else len(text.spans)
    needed = n_spans + sum(map(len, runs))
    return not needed or (n_spans <= len(tokenizer.placeholder_ids) and needed < max_new)


def keep_spans(text: MaskedText, tokenizer: Tokenizer, max_new: int) -> "Keeping":
    """Return the constraint for a translation of this text, in at most `max_new` tokens."""
    return Keeping(text, tokenizer, max_new)


class Keeping:
    """The constraint of a translation: every span of its source, each once, and every run of
    tokens, such as the words of a term. It is free until the space that is left is needed."""

    def __init__(
        self,
        text: MaskedText | None,
        tokenizer: Tokenizer,
        max_new: int,
        runs: Sequence[Sequence[int]] = (),
    ) -> None:
        """Prepare the constraint. Without a text, the model has no reserved tokens for spans."""
        assert can_keep(text, tokenizer, max_new, runs)
        self.text, self.max_new, self.runs = text, max_new, [tuple(run) for run in runs]
        self.reserved, self.eos_id = tokenizer.placeholder_ids, tokenizer.eos_id
        self.numbers = {index: number for number, index in enumerate(self.reserved)}
        self.never: frozenset[int] = frozenset()
        if text is not None:
            with_signs = _tokens_with_signs(tokenizer)
            unused = (with_signs[sign] for sign in text.unused_signs)
            self.never = frozenset(self.reserved).union(*unused)

    def __call__(self, new: Sequence[int]) -> NextTokens:
        """Return the tokens that may follow."""
        state = self._after(new)
        spans = [] if self.text is None else next_spans(self.text, state.used)
        admitted = {self.reserved[number] for number in spans}
        if not state.n_missing:
            is_last = bool(self.runs) and self.max_new - len(new) <= 1
            return [self.eos_id] if is_last else AllBut(self.never - admitted)
        if not state.is_full:
            return AllBut((self.never - admitted) | {self.eos_id})
        follow = {run[len(state.begun)] for run in state.longer(state.begun)}
        return follow if state.begun else follow | admitted

    def needed(self, new: Sequence[int]) -> int:
        """Return the number of tokens that are still needed after these, the end included."""
        return self._after(new).n_needed

    def _after(self, new: Sequence[int]) -> "_Progress":
        """Return which spans and runs are in these tokens, and which are missing."""
        state = _Progress(set(self.runs), 0 if self.text is None else len(self.text.spans))
        state.is_full = bool(state.n_missing) and self.max_new <= state.n_needed
        for length, token in enumerate(new, 1):
            if token in self.numbers and self.text is not None:
                state.used.append(self.numbers[token])
            whole = {run for run in state.missing if _ends_in(new, length, run)}
            state.missing -= whole
            if state.is_full:
                begun = (*state.begun, token)
                state.begun = begun if state.longer(begun) else ()
            elif state.n_missing:
                state.is_full = self.max_new - length <= state.n_needed
        return state


def _ends_in(tokens: Sequence[int], length: int, run: tuple[int, ...]) -> bool:
    """Tell whether the first tokens, up to this number, end in this run."""
    return len(run) <= length and (*tokens[length - len(run) : length],) == run


@dataclass
class _Progress:
    """The progress of a translation."""

    missing: set[tuple[int, ...]]
    """The missing runs."""
    n_spans: int
    used: list[int] = field(default_factory=list)
    """The spans that the translation already has."""
    is_full: bool = False
    """True if all the space that is left is needed."""
    begun: tuple[int, ...] = ()
    """The beginning of a missing run with which the translation now ends."""

    @property
    def n_missing(self) -> int:
        return len(self.missing) + self.n_spans - len(self.used)

    @property
    def n_needed(self) -> int:
        return sum(map(len, self.missing)) + self.n_spans - len(self.used) + 1

    def longer(self, begun: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the missing runs that begin with these tokens and are longer."""
        return [run for run in self.missing if len(run) > len(begun) and run[: len(begun)] == begun]


def next_spans(text: MaskedText, used: Sequence[int]) -> list[int]:
    """Return the spans that may follow those: each span once, with tags nested and unnumbered
    arguments in their order. While a span is missing, at least one span may follow."""
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
    """Tell whether the tokens of a translation contain each span once, in a permitted place. This
    check is for engines that take no constraint."""
    numbers = {index: number for number, index in enumerate(tokenizer.placeholder_ids)}
    used = [numbers[token] for token in tokens if token in numbers]
    return len(used) == len(text.spans) and all(
        number in next_spans(text, used[:n_before]) for n_before, number in enumerate(used)
    )
