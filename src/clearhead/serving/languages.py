"""Handles codes of languages as clients write them, and detects the language of a text."""

import re
import threading
from collections.abc import Collection

from clearhead.decoding.sentences import LanguagePair
from clearhead.localise.language_codes import TRADITIONAL
from clearhead.text.language_identifier import language_identifier

NAMES = {
    "af": "Afrikaans", "am": "Amharic", "ar": "Arabic", "az": "Azerbaijani", "be": "Belarusian",
    "bg": "Bulgarian", "bn": "Bengali", "bo": "Tibetan", "bs": "Bosnian", "ca": "Catalan",
    "cs": "Czech", "cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek", "en": "English",
    "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian",
    "fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician", "gu": "Gujarati",
    "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "hy": "Armenian",
    "id": "Indonesian", "is": "Icelandic", "it": "Italian", "ja": "Japanese", "ka": "Georgian",
    "kk": "Kazakh", "km": "Khmer", "kn": "Kannada", "ko": "Korean", "ku": "Kurdish",
    "ky": "Kyrgyz", "la": "Latin", "lb": "Luxembourgish", "lo": "Lao", "lt": "Lithuanian",
    "lv": "Latvian", "mg": "Malagasy", "mk": "Macedonian", "ml": "Malayalam", "mn": "Mongolian",
    "mr": "Marathi", "ms": "Malay", "mt": "Maltese", "my": "Burmese", "nb": "Norwegian Bokmål",
    "ne": "Nepali", "nl": "Dutch", "nn": "Norwegian Nynorsk", "no": "Norwegian", "or": "Odia",
    "pa": "Punjabi", "pl": "Polish", "ps": "Pashto", "pt": "Portuguese", "ro": "Romanian",
    "ru": "Russian", "rw": "Kinyarwanda", "si": "Sinhala", "sk": "Slovak", "sl": "Slovenian",
    "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili", "ta": "Tamil",
    "te": "Telugu", "th": "Thai", "tl": "Tagalog", "tr": "Turkish", "ug": "Uyghur",
    "uk": "Ukrainian", "ur": "Urdu", "uz": "Uzbek", "vi": "Vietnamese", "xh": "Xhosa",
    "yi": "Yiddish", "yo": "Yoruba", "zh": "Chinese", "zh-Hant": "Chinese (traditional)",
    "zu": "Zulu",
}  # fmt: skip
_AT_THE_END = re.compile(r"(?:^|[-_.\s])([a-z]{2,3}(?:-Hant)?)-([a-z]{2,3}(?:-Hant)?)$")
MAX_CODE = 35
"""The highest number of characters; a longer text is not a language code (RFC 5646)."""


def pair_in_name(name: str) -> LanguagePair | None:
    """Return the language pair at the end of a run's name: multi30k-de-en translates German to
    English."""
    match = _AT_THE_END.search(name)
    if match is None or not {*match.groups()} <= NAMES.keys():
        return None
    return LanguagePair(*match.groups())


def language_name(code: str) -> str:
    """Return the English name of a language, or its code if it is not in the table."""
    return NAMES.get(code, code)


def find_language(code: str, supported: Collection[str]) -> str | None:
    """Return the supported code for a client's code: zh-CN, zh_Hans and ZH are zh. A model for zh
    does not generate traditional Chinese."""
    if len(code) > MAX_CODE:
        return None
    first, *rest = re.split("[-_]", code.strip().lower())
    chinese = first == "zh" and "hans" not in rest
    traditional = first == "zt" or (chinese and bool(TRADITIONAL.intersection(rest)))
    preferred = "zh-Hant" if traditional else first
    by_lower = {language.lower(): language for language in supported}
    for candidate in ("-".join([first, *rest]), preferred.lower()):
        if candidate in by_lower:
            return by_lower[candidate]
    return None


def _base(code: str) -> str:
    """Return the code that the detector uses for a language."""
    first = code.split("-")[0].lower()
    return {"nb": "no", "nn": "no"}.get(first, first)


class Detector:
    """Detects the language of a text, by py3langid."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._identifier = language_identifier()

    def unknown(self, codes: Collection[str]) -> list[str]:
        """Return the languages that the detector never returns."""
        return [code for code in codes if _base(code) not in self._identifier.labels]

    def ranked(self, text: str, among: Collection[str] = ()) -> list[tuple[str, float]]:
        """Return the languages with their probabilities, the likeliest first. `among` limits the
        choice."""
        with self._lock:
            codes = [(str(code), float(chance)) for code, chance in self._identifier.rank(text)]
        if not among:
            return codes
        bases = {_base(code): code for code in sorted(among, reverse=True)}
        kept = [(bases[code], chance) for code, chance in codes if code in bases]
        total = sum(chance for _, chance in kept)
        if total <= 0:
            return [(code, 1 / len(bases)) for code in bases.values()]
        return [(code, chance / total) for code, chance in kept]
