"""Detects the language of lines with py3langid (the extra `corpus`): the language of each side, and
lines that are clearly in another language."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from clearhead.text.language_identifier import language_identifier

_HAN_AND_KANA = re.compile(r"[\u3041-\u30fa\u3400-\u9fff\uac00-\ud7a3]")
# Code has no language. Words are matched only from their beginnings: matching from each letter
# would take quadratic time for a line without blanks.
_MARKUP = re.compile(r"<[^<>]*>|`[^`]*`|:\w+:|(?:(?<!\w)\w*)?[\d_/\\@]\w*|(?<!\w)\w+\.\w+")

_SCRIPTS = {  # of languages that no other one of these is written in
    "ja": re.compile(r"[\u3041-\u3096\u30a1-\u30fa]"),
    "ko": re.compile(r"[\uac00-\ud7a3]"),
}
SCRIPT_SHARE = 0.1  # of the letters; a name in another script has less

ENOUGH = 25  # letters; a character of Chinese, Japanese or Korean counts as three
MAJORITY = 0.5  # of the lines of a side: less, and the side has no language
LENGTH = 4000  # characters that are read to tell the language of many texts
CLEARLY = 40.0  # times as likely as the side's own language
BETWEEN_TWO = 4.0  # times as likely as the other side's, on average over both sides


class Languages:
    """The languages of the sides of a corpus, found in a sample of it."""

    def __init__(self, sample: Sequence[tuple[str, ...]]) -> None:
        self.identifier = language_identifier()
        self.sides: list[str | None] = []
        for side in zip(*sample):
            counts = Counter(
                self.identifier.classify(plain)[0] for text in side if (plain := _plain(text))
            )
            best, n = counts.most_common(1)[0] if counts else ("", 0)
            self.sides.append(best if n > MAJORITY * counts.total() else None)
        if len(self.sides) == 2 and (None in self.sides or self.sides[0] == self.sides[1]):
            self.sides = self._of_both_orders(sample) or self.sides

    def _of_both_orders(self, sample: Sequence[tuple[str, ...]]) -> list[str | None]:
        """Return the languages of a corpus in which so many pairs are swapped that neither side has
        one language: the two that occur together in most pairs, in their more frequent order."""
        orders: Counter[tuple[str, ...]] = Counter()
        for texts in sample:
            plain = [_plain(text) for text in texts[:2]]
            if all(plain):
                orders[tuple(self.identifier.classify(text)[0] for text in plain)] += 1
        if not orders:
            return []
        (first, second), n = orders.most_common(1)[0]
        is_most = n + orders[second, first] > MAJORITY * orders.total()
        return [first, second] if is_most and first != second and orders[second, first] else []

    def other_than(self, side: int, text: str) -> str | None:
        """Return a language in which the text clearly is, and its side is not."""
        own, plain = self.sides[side], _plain(text)
        if own is None or not plain:
            return None
        if own in ("zh", "ja", "ko") and _HAN_AND_KANA.search(plain):
            # A sentence about commands or titles may be mostly Latin and still be Chinese.
            other = _by_script(plain)
            return other if other != own else None
        (best, likely), *_ = ranked = self._ranked(plain)
        return best if best != own and likely > CLEARLY * dict(ranked)[own] else None

    def third(self, text: str) -> str | None:
        """Return a language in which the text clearly is, and neither side is."""
        others = [self.other_than(side, text) for side in range(len(self.sides))]
        return others[0] if len(set(others)) == 1 and others[0] not in self.sides else None

    def swapped(self, texts: tuple[str, ...]) -> bool:
        """Tell whether each side is in the language of the other."""
        source, target = self.sides
        if source is None or target is None or source == target:
            return False
        odds = 1.0
        for text, own, other in ((texts[0], source, target), (texts[1], target, source)):
            plain = _plain(text, enough=6)
            likely = dict(self._ranked(plain)) if plain else {}
            if not likely or likely[other] < likely[own] or self.third(text):
                return False
            odds *= likely[other] / max(likely[own], 1e-30)
        return odds >= BETWEEN_TWO**2

    def _ranked(self, plain: str) -> list[tuple[str, float]]:
        """Return languages, the likeliest first. Capitals are replaced by small letters first."""
        return self.identifier.rank(plain.lower() if plain.isupper() else plain)


def _by_script(plain: str) -> str | None:
    """Recognise Japanese and Korean by their scripts; text without these scripts is Chinese."""
    letters = max(1, sum(map(str.isalpha, plain)))
    for language, script in _SCRIPTS.items():
        if len(script.findall(plain)) >= SCRIPT_SHARE * letters:
            return language
    return "zh"


def _plain(text: str, enough: int = ENOUGH) -> str:
    """Return the words of a line, or nothing if they are too few to tell its language."""
    words = " ".join(_MARKUP.sub(" ", text).split())
    letters = sum(map(str.isalpha, words)) + 2 * len(_HAN_AND_KANA.findall(words))
    return words if letters >= enough else ""


_ALIKE = ({"da", "nb", "nn", "no"}, {"bs", "hr", "sr"}, {"id", "ms"}, {"cs", "sk"}, {"gl", "pt"})
"""Languages that the detector confuses."""


def other_language(texts: Iterable[str], expected: str) -> str | None:
    """Return the language of texts that clearly are not in the expected one, or "" if only that is
    clear; None if they may be in it. Without py3langid, only scripts tell languages apart."""
    words = " ".join(_MARKUP.sub(" ", " ".join(texts)).split())[:LENGTH]
    own, letters = expected.split("-")[0].lower(), sum(map(str.isalpha, words))
    eastern = len(_HAN_AND_KANA.findall(words))
    if eastern > letters / 2:
        script = _by_script(words)
        return None if own in (script, "yue") or (own == "ja" and letters < ENOUGH) else script
    if own in ("zh", "ja", "ko", "yue") and (eastern or len(words.split()) < 3):
        return None
    other = "" if own in ("zh", "ja", "ko", "yue") else None
    if letters < 2 * ENOUGH or not can_tell_languages():
        return other
    ranked = language_identifier().rank(words.lower() if words.isupper() else words)
    (best, likely), chances = ranked[0], dict(ranked)
    alike = next((group for group in _ALIKE if own in group), {own})
    if own not in chances or best in alike:
        return other
    return best if likely > CLEARLY * chances[own] else other


def length_in_letters(text: str) -> int:
    """Return the length of a text in letters. A character of Chinese, Japanese or Korean counts as
    three, so that names in Latin letters do not make such a text seem longer."""
    return len(text) + 2 * len(_HAN_AND_KANA.findall(text))


def can_tell_languages() -> bool:
    """Tell whether the optional package for language identification is installed."""
    from importlib.util import find_spec

    return find_spec("py3langid") is not None
