"""Checks what a `tokenizer.json` from anybody makes its library do: no short text may take minutes
or fill the memory. A file that cannot be shown to be harmless is refused, unless the user trusts
its maker (docs/decisions/2026-11-18-untrusted-tokenizers.md)."""

import json
import re
from collections.abc import Iterator
from math import ceil
from typing import Any, NoReturn

from tokenizers import Tokenizer as LibraryTokenizer

from clearhead.environment import trusts_tokenizers
from clearhead.errors import DataError
from clearhead.text.character_maps import map_growth
from clearhead.text.pattern_cost import check_linear
from clearhead.text.pattern_tree import PatternError
from clearhead.text.patterns import MAX_PATTERN

MAX_GROWTH = 128
"""How many times longer (in bytes) a tokenizer.json may make a text; T5's can make it 88 times."""
MAX_STEPS = 64
"""Normalizers, or pre-tokenizers, or decoders."""
MAX_PATTERNS = 16
"""Regular expressions; each takes a few milliseconds to judge."""
MAX_VALUES = 20_000
"""Numbers and strings outside of the vocabulary."""
MAX_TOKEN = 1000
"""Characters of a token; the longest in use is 512 spaces."""
MAX_WORD = 256
"""The highest number of characters in a word of WordPiece, which takes cubic time; BERT's limit is
100."""
MAX_RUN = 1000
"""The highest number of spaces, or of digits, in a row, if a pattern takes quadratic time for
them."""
PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
MAP = "precompiled_charsmap"
MAX_MAP = 2**21
"""The highest number of characters in a map of characters; maps in use have 330,000."""
FORMS = {"NFC": 3, "NFD": 3, "NFKC": 11, "NFKD": 11, "Lowercase": 2, "BertNormalizer": 3}
"""How many times longer these normalisers make a text. Several of them, one after another, make it
no longer than the worst of them."""
CALM = {"Strip", "StripAccents", "Nmt"}
"""Normalizers that only shorten."""
KEEPS_TEXT = {"Split", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit", "BertPreTokenizer"}
KEEPS_TEXT |= {"CharDelimiterSplit", "FixedLength", "UnicodeScripts"}
"""Pre-tokenizers that only divide a text."""
DECODERS = {"Fuse": 1, "ByteFallback": 1, "WordPiece": 2, "CTC": 2, "BPEDecoder": 2}
"""How many times longer these steps make a text: some put a space after a token."""
SLOW = {
    r"\s+$": r"\s",  # DeepSeek LLM and V2
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|"
    r"\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}": r"\s",  # Jais 2
    r"\d{1,3}(?=(?:\d{3})*\b)": r"\d",  # Tiny Aya
    r"(?=(\d{3})+(?!\d))": r"\d",  # SuperBPE
}
"""Patterns in use that take quadratic time, and for which characters. They are accepted, and a text
with too many such characters in a row is refused."""


def check_sizes(text: str) -> None:
    """Check the sizes in a `tokenizer.json`, before the library compiles it."""
    content = json.loads(text, object_pairs_hook=_without_repeats)
    if trusts_tokenizers() or not isinstance(content, dict):
        return  # the library will say what is wrong
    for n, (key, value) in enumerate(_values({name: content.get(name) for name in PARTS})):
        limit = MAX_MAP if key == MAP else MAX_PATTERN
        if n > MAX_VALUES or (isinstance(value, str) and len(value) > limit):
            _refuse(f"has more than {MAX_VALUES:,} settings, or one of over {limit:,} characters")
    model = content.get("model")
    model = model if isinstance(model, dict) else {}
    longest = max(map(len, _tokens(content.get("added_tokens"), model)), default=0)
    if longest > MAX_TOKEN:
        _refuse(f"has a token of {longest:,} characters, and {MAX_TOKEN:,} is the limit")
    word = model.get("max_input_chars_per_word", 0)
    if not isinstance(word, int) or word > MAX_WORD:
        _refuse(f"has max_input_chars_per_word={word!r:.30}, and {MAX_WORD} is the limit")


def check_parts(library: LibraryTokenizer) -> None:
    """Check that no short text takes minutes or fills the memory. The parts are judged as the
    library has understood them."""
    if trusts_tokenizers():
        return
    normalizer, pre_tokenizer, post_processor, decoder = _states(library)
    _check_slow([*_steps(normalizer), *_steps(decoder)], [*_steps(pre_tokenizer)])
    encoding = _growth([*_steps(normalizer), *_steps(pre_tokenizer)]) * _copies(post_processor)
    for growth, verb in ((encoding, "a text"), (_growth([*_steps(decoder)]), "what it decodes")):
        if growth > MAX_GROWTH:
            _refuse(f"can make {verb} {growth:,} times as long, and {MAX_GROWTH} is the limit")


def slow_runs(library: LibraryTokenizer) -> re.Pattern[str] | None:
    """Return what a text may not contain, because a pattern of this tokenizer would take minutes
    for it."""
    state = json.loads(library.pre_tokenizer.__getstate__()) if library.pre_tokenizer else None
    runs = {SLOW[pattern] for pattern in map(_regex, _steps(state)) if pattern in SLOW}
    if not runs or trusts_tokenizers():
        return None
    return re.compile("|".join(f"{kind}{{{MAX_RUN + 1}}}" for kind in sorted(runs)))


def _refuse(what: str) -> NoReturn:
    raise DataError(
        f"this tokenizer {what}; is tokenizer.json damaged? If you trust whoever made it, set "
        "CLEARHEAD_TRUST_TOKENIZERS=1"
    )


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises if a name occurs twice in an object: the library and clearhead might read different
    ones."""
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise DataError("tokenizer.json has the same name twice in one object; is it damaged?")
    return unique


def _values(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield "", name
            yield from _values(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _values(inner, key)
    else:
        yield key, value


def _tokens(added: Any, model: dict[str, Any]) -> Iterator[str]:
    """Yield every string that can become a token, or a part of one."""
    vocabulary = model.get("vocab")
    strings = [model.get("continuing_subword_prefix"), model.get("end_of_word_suffix")]
    strings += [token.get("content") for token in added or [] if isinstance(token, dict)]
    if isinstance(vocabulary, dict):
        yield from vocabulary
    elif isinstance(vocabulary, list):  # of [token, score]
        strings += [entry[0] for entry in vocabulary if isinstance(entry, list) and entry]
    yield from (string for string in strings if isinstance(string, str))


def _states(library: LibraryTokenizer) -> list[Any]:
    parts = [getattr(library, name) for name in PARTS]
    return [None if part is None else json.loads(part.__getstate__()) for part in parts]


def _steps(state: Any) -> Iterator[dict[str, Any]]:
    """The steps of a part in their order, without the sequences that hold them."""
    if isinstance(state, dict) and state.get("type") == "Sequence":
        for name in ("normalizers", "pretokenizers", "decoders", "processors"):
            for inner in state.get(name, []):
                yield from _steps(inner)
    elif state is not None:
        yield state


def _regex(step: dict[str, Any]) -> str | None:
    pattern = step.get("pattern")
    return pattern.get("Regex") if isinstance(pattern, dict) else None


def _check_slow(others: list[dict[str, Any]], pre_tokenizers: list[dict[str, Any]]) -> None:
    patterns = {_regex(step) for step in [*others, *pre_tokenizers]}
    if max(len(others), len(pre_tokenizers)) > MAX_STEPS or len(patterns) > MAX_PATTERNS:
        _refuse(f"has more than {MAX_STEPS} steps, or {MAX_PATTERNS} regular expressions")
    for step in others:
        _check_pattern(step)
    keeps = True
    for step in pre_tokenizers:
        # Behind a step that changes the text, nobody has counted its blanks and digits.
        if not (keeps and _regex(step) in SLOW):
            _check_pattern(step)
        keeps = keeps and step["type"] in KEEPS_TEXT


def _check_pattern(step: dict[str, Any]) -> int:
    """Return the length in bytes of the shortest text that the pattern of a step matches."""
    pattern = step.get("pattern")
    if isinstance(pattern, dict) and "String" in pattern:
        return len(pattern["String"].encode())
    if (expression := _regex(step)) is None:
        return 1
    try:
        return check_linear(expression)
    except PatternError as error:
        _refuse(
            f"has the pattern {expression!r:.60}, which may take minutes for a short text: {error}"
        )


def _growth(steps: list[dict[str, Any]]) -> int:
    """Return how many times longer the steps can make a text."""
    growth, form = 1, 1
    for step in steps:
        kind = step["type"]
        if kind in FORMS:
            form = max(form, FORMS[kind])
            growth *= 2 if step.get("handle_chinese_chars") else 1
        elif kind not in CALM:
            growth *= form * _growth_of(step, compatible=form == FORMS["NFKD"])
            form = 1
    return growth * form


def _growth_of(step: dict[str, Any], *, compatible: bool) -> int:
    match step["type"]:
        case "Replace":
            made, least = len(step["content"].encode()), _check_pattern(step)
            return max(1, ceil(made / least)) if least else 1 + 2 * made
        case "Prepend":
            return 1 + len(step["prepend"].encode())
        case "Metaspace":
            return 1 + len(step["replacement"].encode())
        case "ByteLevel":
            return 4 if step.get("add_prefix_space") else 2
        case "Precompiled":
            return map_growth(step[MAP], compatible=compatible)
        case kind if kind in KEEPS_TEXT or kind in DECODERS:
            return DECODERS.get(kind, 1)
        case kind:
            _refuse(f"has a step {kind!r}, which this version of clearhead does not know")


def _copies(post_processor: Any) -> int:
    """Return how often the text occurs in the output of a post-processor."""
    copies = 1
    for step in _steps(post_processor):
        if step["type"] == "TemplateProcessing":
            copies *= max(1, sum("Sequence" in piece for piece in step["single"]))
    return copies
