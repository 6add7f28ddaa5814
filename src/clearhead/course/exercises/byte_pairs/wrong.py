"""Wrong answers to exercise 9."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from clearhead.course.checking import Mistake, combined
from clearhead.course.exercises.byte_pairs import solution
from clearhead.course.exercises.byte_pairs.checks import TokenPair


def _overlapping(tokens: list[str], pair: TokenPair) -> list[str]:
    """A merge moves on by one token only."""
    found, i = [], 0
    while i < len(tokens):
        if tuple(tokens[i : i + 2]) == pair:
            found.append("".join(pair))
        else:
            found.append(tokens[i])
        i += 1
    return found


def _merged_and_its_second(tokens: list[str], pair: TokenPair) -> list[str]:
    """Every pair of neighbours is looked at, whatever was merged before."""
    found: list[str] = tokens[:1]
    for one, two in pairwise(tokens):
        if (one, two) == pair:
            found[-1] = one + two
        else:
            found.append(two)
    return found


def _from_the_right(tokens: list[str], pair: TokenPair) -> list[str]:
    found: list[str] = []
    while tokens:
        n = 2 if tuple(tokens[-2:]) == pair else 1
        found.insert(0, "".join(tokens[-n:]))
        tokens = tokens[:-n]
    return found


def _last_lost(tokens: list[str], pair: TokenPair) -> list[str]:
    """The loop ends before the last token, unless a merge takes it."""
    found, i = [], 0
    while i < len(tokens) - 1:
        joins = (tokens[i], tokens[i + 1]) == pair
        found.append("".join(pair) if joins else tokens[i])
        i += 2 if joins else 1
    return found


def _in_a_string(tokens: list[str], pair: TokenPair) -> list[str]:
    return " ".join(tokens).replace(" ".join(pair), "".join(pair)).split()


def _first_only(tokens: list[str], pair: TokenPair) -> list[str]:
    for i in range(len(tokens) - 1):
        if (tokens[i], tokens[i + 1]) == pair:
            return [*tokens[:i], "".join(pair), *tokens[i + 2 :]]
    return list(tokens)


def _by_spelling(tokens: list[str], pair: TokenPair) -> list[str]:
    """Compares what two tokens spell together."""
    found, i = [], 0
    while i < len(tokens):
        both = "".join(tokens[i : i + 2])
        joins = i + 1 < len(tokens) and both == "".join(pair)
        found.append(both if joins else tokens[i])
        i += 2 if joins else 1
    return found


def _in_place(tokens: list[str], pair: TokenPair) -> list[str]:
    i = 0
    while i + 1 < len(tokens):
        if (tokens[i], tokens[i + 1]) == pair:
            tokens[i : i + 2] = ["".join(pair)]
        i += 1
    return tokens


def _changes_its_list(merge_pair: Any) -> bool:
    tokens = list("xaby")
    return merge_pair(tokens, ("a", "b")) == ["x", "ab", "y"] and tokens != list("xaby")


def _split(text: str) -> list[list[str]]:
    return [list(word) for word in text.split()]


def _smallest(counts: Counter[TokenPair]) -> TokenPair:
    return min(counts, key=lambda pair: (-counts[pair], pair))


def _build(
    words_of: Callable[[str], list[list[str]]] = _split,
    best: Callable[[Counter[TokenPair]], TokenPair] = _smallest,
    recount: bool = True,
    least: int = 1,
) -> Callable[[str, int], list[TokenPair]]:
    """The loop, with one or two steps replaced."""

    def learn_merges(text: str, n_merges: int) -> list[TokenPair]:
        words, merges = words_of(text), []
        counts: Counter[TokenPair] = Counter()
        for turn in range(n_merges):
            if recount or turn == 0:
                counts = Counter(pair for word in words for pair in pairwise(word))
            if not counts or max(counts.values()) < least:
                break
            pair = best(counts)
            words = [solution.merge_pair(word, pair) for word in words]
            merges.append(pair)
            if not recount:
                del counts[pair]
        return merges

    return learn_merges


def _longest_match(word: str, merges: list[TokenPair]) -> list[str]:
    known, found, i = {one + two for one, two in merges}, [], 0
    while i < len(word):
        fits = [end for end in range(len(word), i + 1, -1) if word[i:end] in known]
        end = fits[0] if fits else i + 1
        found.append(word[i:end])
        i = end
    return found


def _leftmost_first(word: str, merges: list[TokenPair]) -> list[str]:
    tokens, known = list(word), set(merges)
    while True:
        places = [i for i, pair in enumerate(pairwise(tokens)) if pair in known]
        if not places:
            return tokens
        i = places[0]
        tokens[i : i + 2] = [tokens[i] + tokens[i + 1]]


def _reversed(word: str, merges: list[TokenPair]) -> list[str]:
    return solution.encode_word(word, merges[::-1])


def _first_of_each(word: str, merges: list[TokenPair]) -> list[str]:
    tokens = list(word)
    for pair in merges:
        tokens = _first_only(tokens, pair)
    return tokens


def _whole_word(word: str, merges: list[TokenPair]) -> list[str]:
    """Known, or spelt."""
    return [word] if word in {one + two for one, two in merges} else list(word)


def _largest(counts: Counter[TokenPair]) -> TokenPair:
    return max(counts, key=lambda pair: (counts[pair], pair))


WRONG_STEPS: dict[str, dict[str, Any]] = {
    "words_of": {
        "each word once": lambda text: [list(word) for word in sorted(set(text.split()))],
        "across words": lambda text: [list("".join(text.split()))],
        "the space is a token": lambda text: [list(text)],
    },
    "best": {
        "largest of equals": _largest,
        "first of equals": lambda counts: counts.most_common(1)[0][0],
        "rarest pair": lambda counts: min(counts, key=lambda pair: (counts[pair], pair)),
    },
    "recount": {"counted once": False},
    "least": {"single pairs left out": 2},
}
MISTAKES = [
    Mistake("token used twice", "merge_pair", _overlapping),
    Mistake("neighbours after a merge", "merge_pair", _merged_and_its_second),
    Mistake("from the right", "merge_pair", _from_the_right),
    Mistake("first pair only", "merge_pair", _first_only),
    Mistake("compares spelling", "merge_pair", _by_spelling),
    Mistake("last token lost", "merge_pair", _last_lost),
    Mistake("replaced in a string", "merge_pair", _in_a_string),
    *combined("learn_merges", _build, WRONG_STEPS),
    Mistake("longest match", "encode_word", _longest_match),
    Mistake("leftmost first", "encode_word", _leftmost_first),
    Mistake("last merge first", "encode_word", _reversed),
    Mistake("one place for each merge", "encode_word", _first_of_each),
    Mistake("known or spelt", "encode_word", _whole_word),
    Mistake("changes its list", "merge_pair", _in_place, fits=_changes_its_list),
]
