"""The language of lines, by py3langid (the extra `corpus`): which one a side is in, and which lines
are clearly in another."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

_HAN_AND_KANA = re.compile(r"[\u3041-\u30fa\u3400-\u9fff\uac00-\ud7a3]")
_MARKUP = re.compile(r"<[^<>]*>|`[^`]*`|:\w+:|\w*[\d_/\\@]\w*|\w+\.\w+")  # code is in no language

ENOUGH = 25  # letters; a character of Chinese, Japanese or Korean counts as three
MAJORITY = 0.5  # of the lines of a side: less, and the side has no language
CLEARLY = 40.0  # times as likely as the side's own language
BETWEEN_TWO = 4.0  # times as likely as the other side's, when both sides say so


class Languages:
    """The languages of the sides of a corpus, found in a sample of it."""

    def __init__(self, sample: Sequence[tuple[str, ...]]) -> None:
        self.identifier = _identifier()
        self.sides: list[str | None] = []
        for side in zip(*sample):
            found = Counter(
                self.identifier.classify(plain)[0] for text in side if (plain := _plain(text))
            )
            best, n = found.most_common(1)[0] if found else ("", 0)
            self.sides.append(best if n > MAJORITY * found.total() else None)

    def other_than(self, side: int, text: str) -> str | None:
        """A language that the text is clearly in, and its side is not."""
        own, plain = self.sides[side], _plain(text)
        if own is None or not plain:
            return None
        if own in ("zh", "ja", "ko") and _HAN_AND_KANA.search(plain):
            return None  # a sentence about commands or titles is mostly Latin, and Chinese
        (best, likely), *_ = ranked = self.identifier.rank(plain)
        return best if best != own and likely > CLEARLY * dict(ranked)[own] else None

    def swapped(self, texts: tuple[str, ...]) -> bool:
        """Whether each side is in the other's language."""
        source, target = self.sides
        if source is None or target is None or source == target:
            return False
        for text, own, other in ((texts[0], source, target), (texts[1], target, source)):
            plain = _plain(text, enough=6)
            likely = dict(self.identifier.rank(plain)) if plain else {}
            if not likely or likely[other] < BETWEEN_TWO * likely[own]:
                return False
        return True


def _plain(text: str, enough: int = ENOUGH) -> str:
    """The words of a line, or nothing where they are too few to tell."""
    words = " ".join(_MARKUP.sub(" ", text).split())
    letters = sum(map(str.isalpha, words)) + 2 * len(_HAN_AND_KANA.findall(words))
    return words if letters >= enough else ""


def can_tell_languages() -> bool:
    """Whether the optional package for language identification is installed."""
    from importlib.util import find_spec

    return find_spec("py3langid") is not None


def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
