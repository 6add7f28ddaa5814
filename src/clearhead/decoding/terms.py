"""Handles translations that lack a term of a glossary. The term is put where the model finds it
most likely, and the rest is decoded again after it. A constraint guarantees the term's tokens,
whatever the model has learnt."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from clearhead.decoding.constraints import Constraint, NextTokens
from clearhead.decoding.keeping import Keeping, can_keep
from clearhead.decoding.results import Output
from clearhead.localise.glossary import UNSPACED, Term, TermUse, is_used, with_blank
from clearhead.localise.masking import MaskedText
from clearhead.text.tokenizer import Tokenizer, UnknownLetterError

_INSIDE_WORD = re.compile(rf"[^\W{UNSPACED}]{{2}}")
MAX_PLACES = 24
"""The highest number of word boundaries in a translation at which a term is tried."""
MAX_ROUNDS = 8
"""The highest number of terms in a translation for which places are tried; a constraint alone
places the others."""
DecodeRows = Callable[[Sequence[list[int]], Sequence[Constraint]], Sequence[Output]]
"""A function that returns a translation of each source under its constraint."""


@dataclass
class TermSearch:
    """A translation that has to use certain terms."""

    source_tokens: list[int]
    terms: tuple[Term, ...]
    masked: MaskedText | None
    """The source with numbers for its spans, if the model has reserved tokens for them."""
    space: int
    """The highest number of tokens that a translation can have."""
    best: Output
    """The best output so far."""
    finish: Callable[[Output], Output | None]
    """Returns the output with its text; None if the output may not be used."""
    tried: list[Term] = field(default_factory=list)
    required: list[Term] = field(default_factory=list)
    """The terms that the constraint requires; there is no space for any others."""

    def missing(self) -> list[Term]:
        """Return terms that the best translation lacks and that have not been tried."""
        return [
            term
            for term in self.terms
            if term not in self.tried and not is_used(term.target, self.best.text)
        ]

    def consider(self, output: Output) -> None:
        """Keep the output with the most terms; if several have equally many, keep the one with the
        highest score."""
        finished = self.finish(output)
        if finished is not None:
            self.best = max(self.best, finished, key=self._rank)

    def _rank(self, output: Output) -> tuple[int, int, float]:
        n_used = sum(is_used(term.target, output.text) for term in self.terms)
        # A term inside a longer word is better than none.
        text = output.text.casefold()
        n_there = sum(term.target.casefold() in text for term in self.terms)
        return n_used, n_there, output.score

    @property
    def output(self) -> Output:
        """The best translation, with the terms that it uses."""
        uses = [TermUse(term, is_used(term.target, self.best.text)) for term in self.terms]
        return replace(self.best, terms=tuple(uses))


def use_terms(searches: Sequence[TermSearch], tokenizer: Tokenizer, decode: DecodeRows) -> None:
    """Require the missing terms: in each round, one more of each translation."""
    while True:
        trials = [
            (search, constraint)
            for search in searches
            for constraint in _next_places(search, tokenizer)
        ]
        if not trials:
            return
        rows = [search.source_tokens for search, _ in trials]
        outputs = decode(rows, [constraint for _, constraint in trials])
        for (search, _), output in zip(trials, outputs):
            search.consider(output)


def _next_places(search: TermSearch, tokenizer: Tokenizer) -> list[Constraint]:
    """Return the constraints that put the next missing term at each place. After many rounds,
    require all missing terms at once."""
    tokens = [token for token in search.best.tokens if token != tokenizer.eos_id]
    n_spans = 0 if search.masked is None else len(search.masked.spans)
    first: list[int] = []
    runs = [term_tokens(term, tokenizer) for term in search.required]
    for term in search.missing():
        run = term_tokens(term, tokenizer)
        search.tried.append(term)
        # A model that may not end would generate forever; slightly more tokens than in the
        # translation are enough.
        needed = sum(map(len, [*runs, run])) + n_spans
        limit = min(search.space, 2 * len(tokens) + needed + 8)
        if run and can_keep(search.masked, tokenizer, limit, [*runs, run]):
            search.required.append(term)
            runs.append(run)
            first = first or run
            if len(search.tried) < MAX_ROUNDS:
                break
    if not first:
        return []
    limit = min(search.space, 2 * len(tokens) + sum(map(len, runs)) + n_spans + 8)
    keeping = Keeping(search.masked, tokenizer, limit, runs)
    begins = [tokens[:n_before] + first for n_before in _places(tokens, tokenizer)]
    return [
        _Beginning(begin, keeping)
        for begin in begins
        if len(begin) + keeping.needed(begin) <= limit
    ]


@dataclass(frozen=True)
class _Beginning:
    """A constraint that requires these tokens first, and then what another constraint allows after
    them."""

    tokens: list[int]
    then: Constraint

    def __call__(self, new: Sequence[int]) -> NextTokens:
        return [self.tokens[len(new)]] if len(new) < len(self.tokens) else self.then(new)


def term_tokens(term: Term, tokenizer: Tokenizer) -> list[int]:
    """Return the tokens of a term inside a text; none if the tokenizer cannot spell it."""
    try:
        return tokenizer.encode(with_blank(term.target))
    except UnknownLetterError:
        return []


def _places(tokens: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """Return the numbers of tokens after which a word may begin: not inside a word or a
    character."""
    places = [
        n_before for n_before in range(len(tokens) + 1) if _is_between(tokens, n_before, tokenizer)
    ]
    step = -(-len(places) // MAX_PLACES)
    return places[:: max(1, step)]


def _is_between(tokens: Sequence[int], index: int, tokenizer: Tokenizer) -> bool:
    before, behind = tokenizer.decode(tokens[:index]), tokenizer.decode(tokens[index:])
    if before.endswith("\ufffd") or behind.startswith("\ufffd"):
        return False
    return _INSIDE_WORD.fullmatch(before[-1:] + behind[:1]) is None
