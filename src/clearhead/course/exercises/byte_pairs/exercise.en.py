"""Exercise 9: byte-pair merges (chapter 0).

Every word begins as a list of its characters. Again and again, the pair of neighbours that is most
frequent becomes one token. "the cat sat the rat" gives

    a t → at (3 times), h e → he (2), t he → the (2), …

Encoding does the merges again, in the order in which they were learnt. A byte-level tokenizer does
the same with bytes.

Replace each blank() and save. Check: clearhead learn check
"""

from collections import Counter
from itertools import pairwise

from clearhead.course import blank


def merge_pair(tokens: list[str], pair: tuple[str, str]) -> list[str]:
    """A new list, in which every such pair of neighbours is one token. Read from the left, and use
    no token twice: a a a with the pair (a, a) gives aa a."""
    return blank()


def learn_merges(text: str, n_merges: int) -> list[tuple[str, str]]:
    """The merges in their order. Words are separated by spaces, and no merge crosses from one word
    into the next. A word that comes three times counts three times. Every two neighbours are a
    pair, so a a a has (a, a) twice. Of equally frequent pairs take the smallest (Python's min). If
    no pair is left, there are fewer merges."""
    return blank()


def encode_word(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """The tokens of a word; it may be new. An empty word has none."""
    return blank()
