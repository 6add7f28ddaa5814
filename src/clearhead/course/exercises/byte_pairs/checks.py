"""Checks of exercise 9. Texts are drawn from few letters, so that pairs repeat and overlap."""

from itertools import pairwise
from typing import Any

import torch

from clearhead.course.checking import Checks, FunctionProbe, Learned, require
from clearhead.course.exercises.byte_pairs import solution

CHECKS = Checks()
TokenPair = tuple[str, str]
DOZEN = "the cat sat the rat sat the fat cat ate the hat"
LIFE: list[TokenPair] = [("生", "命"), ("研", "究"), ("研究", "生")]


def random_text(n_words: int, letters: str = "abc") -> str:
    """Return random words of two to six letters."""
    lengths = torch.randint(2, 7, (n_words,)).tolist()
    return " ".join(
        "".join(letters[i] for i in torch.randint(len(letters), (length,))) for length in lengths
    )


def random_merges() -> list[TokenPair]:
    """Return merges that were learnt from a random text; they are used to encode another."""
    return solution.learn_merges(random_text(30), 12)


def lowest_rank_first(word: str, merges: list[TokenPair]) -> list[str]:
    """Encode in another right way: of the pairs in the word, always merge the pair that was learnt
    first. The result differs only where two merges spell the same token, which no check asks
    for."""
    tokens = list(word)
    while known := [pair for pair in pairwise(tokens) if pair in merges]:
        tokens = solution.merge_pair(tokens, min(known, key=merges.index))
    return tokens


def _probe_merge(f: Any) -> object:
    tokens = [["a", "b", "ab", "c"][i] for i in torch.randint(4, (30,))]
    return [
        f(list(tokens), pair)
        for pair in (("a", "b"), ("a", "a"), ("ab", "c"), ("a", "bc"), ("b", "a"))
    ]


def _probe_learn(f: Any) -> object:
    return [f(random_text(20), 8), f(random_text(4, "ab"), 6), f(DOZEN, 5), f("aaaa aaa bb", 3)]


def _probe_encode(f: Any) -> object:
    merges = random_merges()
    return [f(word, merges) for word in (*random_text(12).split(), "", "xyz")] + [
        f("研究生命", LIFE)
    ]


PROBES: dict[str, FunctionProbe] = {
    "merge_pair": _probe_merge,
    "learn_merges": _probe_learn,
    "encode_word": _probe_encode,
}


def shown(tokens: Any) -> str:
    """Show a list of tokens as text for a learner."""
    return " ".join(map(str, tokens)) if isinstance(tokens, list) else str(tokens)


def shown_merges(merges: Any) -> str:
    """Show a list of pairs as text for a learner."""
    return ", ".join(shown(list(pair)) for pair in merges) if isinstance(merges, list) else "–"


@CHECKS.about("merge_pair")
def every_pair(it: Learned) -> None:
    """Every occurrence of the pair is merged, and nothing else."""
    found = it["merge_pair"](list("thethat"), ("t", "h"))
    require(found == ["th", "e", "th", "a", "t"], found=shown(found))


@CHECKS.about("merge_pair")
def no_token_twice(it: Learned) -> None:
    """Two overlapping pairs do not share a token."""
    for n, wanted in ((3, ["aa", "a"]), (4, ["aa", "aa"]), (5, ["aa", "aa", "a"])):
        found = it["merge_pair"](["a"] * n, ("a", "a"))
        require(found == wanted, tokens="a " * n, found=shown(found), wanted=shown(wanted))


@CHECKS.about("merge_pair")
def tokens_not_letters(it: Learned) -> None:
    """The pair (a, bc) matches whole tokens: the tokens ab and c do not match it, though they spell
    the same abc, and neither does the a at the end of ca."""
    for tokens, wanted in (
        (["ab", "c", "a", "bc"], ["ab", "c", "abc"]),
        (["ca", "bc", "a", "bc"], ["ca", "bc", "abc"]),
    ):
        found = it["merge_pair"](list(tokens), ("a", "bc"))
        require(found == wanted, tokens=shown(tokens), found=shown(found), wanted=shown(wanted))


@CHECKS.about("merge_pair")
def short_lists(it: Learned) -> None:
    """Lists in which there is nothing to merge stay the same."""
    for tokens in ([], ["a"], ["b", "a"]):
        found = it["merge_pair"](list(tokens), ("a", "b"))
        require(found == tokens, tokens=shown(tokens) or "[]", found=shown(found) or "[]")


@CHECKS.about("merge_pair")
def list_unchanged(it: Learned) -> None:
    """The caller's list stays unchanged, because the caller still needs it."""
    tokens = list("abab")
    it["merge_pair"](tokens, ("a", "b"))
    require(tokens == list("abab"), found=shown(tokens))


@CHECKS.about("merge_pair")
def new_list(it: Learned) -> None:
    """The result is a new list, even if there is nothing to merge."""
    tokens = list("ab")
    require(it["merge_pair"](tokens, ("x", "y")) is not tokens)


@CHECKS.about("learn_merges")
def most_frequent(it: Learned) -> None:
    """The first merges are those of the chapter."""
    found = it["learn_merges"](DOZEN, 3)
    require(found == [("a", "t"), ("h", "e"), ("t", "he")], found=shown_merges(found))


@CHECKS.about("learn_merges")
def words_count(it: Learned) -> None:
    """A word counts as often as it occurs."""
    found = it["learn_merges"]("xy ab ab ab xyz xyw", 2)
    require(found[:2] == [("a", "b"), ("x", "y")], found=shown_merges(found))


@CHECKS.about("learn_merges")
def within_words(it: Learned) -> None:
    """No pair crosses from one word into the next."""
    found = it["learn_merges"]("ba ba ba ba", 3)
    require(found == [("b", "a")], found=shown_merges(found))


@CHECKS.about("learn_merges")
def equal_counts(it: Learned) -> None:
    """If two pairs are equally frequent, the smaller one comes first."""
    found = it["learn_merges"]("cd ab", 2)
    require(found == [("a", "b"), ("c", "d")], found=shown_merges(found))


@CHECKS.about("learn_merges")
def as_many_as_asked(it: Learned) -> None:
    """There are no more merges than asked for, and no more than the text allows."""
    for n, wanted in ((0, 0), (1, 1), (2, 2), (99, 4)):
        found = it["learn_merges"]("abc de abc fg", n)
        require(len(found) == wanted, asked=n, found=len(found), wanted=wanted)
    for empty in ("", "  "):
        require(it["learn_merges"](empty, 3) == [], asked=3, found="…", wanted=0)


@CHECKS.about("learn_merges")
def any_text(it: Learned) -> None:
    """On random texts, the merges are those of the reference."""
    for text in (random_text(40), random_text(25, "ab"), random_text(12, "我喜欢你")):
        found, wanted = it["learn_merges"](text, 10), solution.learn_merges(text, 10)
        require(
            found == wanted, text=text[:40], found=shown_merges(found), wanted=shown_merges(wanted)
        )


@CHECKS.about("encode_word")
def known_word(it: Learned) -> None:
    """A word of the text becomes one token."""
    found = it["encode_word"]("the", [("a", "t"), ("h", "e"), ("t", "he")])
    require(found == ["the"], found=shown(found))


@CHECKS.about("encode_word")
def new_word(it: Learned) -> None:
    """A new word is put together from the tokens that exist."""
    found = it["encode_word"]("that", [("a", "t"), ("h", "e"), ("t", "he")])
    require(found == ["t", "h", "at"], found=shown(found))


@CHECKS.about("encode_word")
def in_their_order(it: Learned) -> None:
    """The earlier merge has priority, not the longer token."""
    found = it["encode_word"]("研究生命", LIFE)
    require(found == ["研究", "生命"], found=shown(found))


@CHECKS.about("encode_word")
def nothing_lost(it: Learned) -> None:
    """The tokens, joined, spell the word."""
    merges = random_merges()
    for word in ("", "a", "xyz", "cabxab", "🙂猫🙂猫"):
        found = it["encode_word"](word, merges)
        require("".join(found) == word, word=word, found=shown(found))


@CHECKS.about("encode_word")
def empty_word(it: Learned) -> None:
    """An empty word gives an empty list, not a list with an empty token."""
    found = it["encode_word"]("", LIFE)
    require(found == [], found=found)


@CHECKS.about("encode_word")
def as_learnt(it: Learned) -> None:
    """On random words, the tokens are those of the reference. Each of two tokenizers encodes the
    words twice, because encoding must not use up the merges, and another tokenizer splits the same
    word in another way."""
    words = (*random_text(40).split(), "aaaaaaa", "abababc")
    for merges in (random_merges(), random_merges()) * 2:
        for word in words:
            found, wanted = it["encode_word"](word, merges), solution.encode_word(word, merges)
            if wanted == lowest_rank_first(word, merges):
                require(found == wanted, word=word, found=shown(found), wanted=shown(wanted))
