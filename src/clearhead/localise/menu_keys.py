"""The accelerator key of a menu entry: `_File`, `&Quit`. It is not copied: a translation gets a key
of its own, as is usual in its language (`_Fichier`, `文件(_F)`)."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from clearhead.localise.masking import Pieces, mask_pair

MAX_LENGTH = 60
"""Characters of the longest menu entry: in a longer text, the signs are text."""
# In the middle of a word (E_xit), only if it looks like no name of a program (read_file).
_FIRST = re.compile(
    r"(?<![\w&_])[_&](?=[^\W_])|(?<=\b[A-Z])[_&](?=[a-z])|(?<=[A-Z][a-z])_(?=[a-z])"
)
_IN_BRACKETS = re.compile(r"\s?\([_&]([^\W_])\)")
_END = re.compile(r"(?:\s*(?:\.\.\.|…|\.|:|：))?\Z")
_LETTERS_HAVE_NO_KEYS = frozenset({"zh", "ja", "ko"})


class MenuKey(NamedTuple):
    """The sign before the letter, and the letter."""

    sign: str
    letter: str


def without_menu_key(pieces: Pieces) -> tuple[Pieces, MenuKey | None]:
    """Return the pieces of a text without its menu key. A text that has the sign twice has no menu
    key."""
    texts = [piece for piece in pieces if isinstance(piece, str)]
    if sum(map(len, texts)) > MAX_LENGTH:
        return pieces, None
    for number, piece in enumerate(pieces):
        if isinstance(piece, int):
            continue
        for form in (_IN_BRACKETS, _FIRST):
            match = form.search(piece)
            if match is None:
                continue
            sign = "_" if "_" in match[0] else "&"
            if sum(text.count(sign) for text in texts) > 1:
                return pieces, None
            letter = match[1] if form is _IN_BRACKETS else piece[match.end()]
            rest = piece[: match.start()] + piece[match.end() :]
            without = (*pieces[:number], rest, *pieces[number + 1 :])
            return tuple(part for part in without if part != ""), MenuKey(sign, letter)
    return pieces, None


def with_menu_key(pieces: Sequence[str | int], menu_key: MenuKey, language: str) -> list[str | int]:
    """Add a menu key to the pieces of a translation. In a script without keys, the source's key
    follows the text in brackets; in others, the key is the same letter, if it occurs, or the first
    letter."""
    sign, letter = menu_key
    places = [number for number, piece in enumerate(pieces) if isinstance(piece, str)]
    texts = list(pieces)
    if language.replace("_", "-").split("-")[0].lower() not in _LETTERS_HAVE_NO_KEYS:
        beginning = rf"(?<!\w){re.escape(letter)}"
        for form in (beginning, re.escape(letter), r"[^\W\d_]"):
            for number in places:
                text = str(pieces[number])
                if match := re.search(form, text, flags=re.I):
                    texts[number] = f"{text[: match.start()]}{sign}{text[match.start() :]}"
                    return texts
    last = texts.pop() if texts and isinstance(texts[-1], str) else ""
    end = _END.search(str(last))
    assert end is not None
    added = f"{str(last)[: end.start()]}({sign}{letter.upper()}){end[0]}"
    return [*texts, added]


def training_pair(source: str, target: str, most: int) -> tuple[Pieces, Pieces]:
    """Make a pair for training. At most `most` of its spans are numbers, and it has no menu keys,
    which are added after translating."""
    pair = mask_pair(source, target, most)
    (plain, key), (plain_target, target_key) = map(without_menu_key, pair)
    return pair if key is None or target_key is None else (plain, plain_target)
