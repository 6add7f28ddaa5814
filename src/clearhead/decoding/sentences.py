"""Splits text into sentences, and joins translated sentences into a text. sentencex (the extra
`serve`) finds the sentences; it knows the abbreviations and marks of many languages."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from clearhead.decoding.rating import joint_confidence
from clearhead.decoding.results import AnsweredText, Output, StopReason, joint_terms
from clearhead.errors import ClearheadError, InputError

WITHOUT_BLANKS = frozenset({"zh", "ja", "th", "lo", "km", "my", "bo", "dz"})
"""Languages that put no space between two sentences."""
# A run of blanks is matched only from its first: matching from each blank would take quadratic
# time.
_LINE_ENDS = re.compile(r"((?<!\s)\s*[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]\s*)")
_LINE_ENDS_ALONE = re.compile(r"([\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+)")
_PAIR = re.compile(r"([A-Za-z]{2,3}(?:-[A-Za-z]{4})?)-([A-Za-z]{2,3}(?:-[A-Za-z]{4})?)")
# Where a sentence that is too long is cut: at the first of these marks that occurs near its middle.
_CUTS = (re.compile(r"[;:；：]\s*"), re.compile(r"[,，、]\s*"), re.compile(r"\s+"))


@dataclass(frozen=True)
class LanguagePair:
    """The languages of a translator's sources and translations, as codes such as en and zh."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"

    @property
    def joint(self) -> str:
        """Return the text between two translated sentences of a line."""
        return "" if self.target.split("-")[0].lower() in WITHOUT_BLANKS else " "


def language_pair(text: str) -> LanguagePair:
    """Return the pair that `en-zh` names."""
    match = _PAIR.fullmatch(text)
    if match is None:
        raise InputError(f"{text!r} is not a pair of languages; write it like en-zh")
    return LanguagePair(*match.groups())


@dataclass(frozen=True)
class SplitText:
    """A text that is split into sentences, with the text between them."""

    sentences: list[str]
    between: list[str]
    """The text before the first sentence, between each two sentences, and after the last."""

    def joined(self, translated: Sequence[str], joint: str) -> str:
        """Join the translated sentences in the form of the text, with its line ends and the white
        space at both ends. Inside a line, `joint` is put between two sentences."""
        parts = [self.between[0]]
        for index, sentence in enumerate(translated):
            gap = self.between[index + 1]
            last = index + 1 == len(translated)
            parts += [sentence, gap if last or _LINE_ENDS.fullmatch(gap) else joint]
        return "".join(parts)


Fits = Callable[[str], bool]
"""A function that tells whether a model can read a sentence as it is."""


def split_text(text: str, language: str, fits: Fits, *, strip: bool = True) -> SplitText:
    """Split a text in this language into sentences. Lines are never joined. A sentence that does
    not fit is split at a punctuation mark or a space near its middle, or anywhere if it has
    neither. Without `strip`, the white space at the ends of a line belongs to its first and its
    last sentence."""
    sentences: list[str] = []
    between = [""]

    def add(part: str) -> None:
        stripped = part.strip()
        if not stripped:
            between[-1] += part
            return
        start = part.index(stripped)
        between[-1] += part[:start]
        sentences.append(stripped)
        between.append(part[start + len(stripped) :])

    for part in (_LINE_ENDS if strip else _LINE_ENDS_ALONE).split(text):
        first = len(sentences)
        for sentence in _sentences(part, language) if part.strip() else [part]:
            for piece in [sentence] if fits(sentence.strip()) else _pieces(sentence, fits):
                add(piece)
        if not strip and len(sentences) > first:
            before, behind = part[: -len(part.lstrip())], part[len(part.rstrip()) :]
            if fits(before + sentences[first]):
                sentences[first] = before + sentences[first]
                between[first] = between[first].removesuffix(before)
            if fits(sentences[-1] + behind):
                sentences[-1] += behind
                between[-1] = between[-1].removesuffix(behind)
    return SplitText(sentences, between)


def _sentences(line: str, language: str) -> list[str]:
    """Split a line into sentences, which together are the line."""
    from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue] (compiled)

    sentences: list[str] = []
    end = 0
    for sentence in segment(language.split("-")[0].lower(), line):
        start = line.find(sentence, end)
        if start < 0:  # not a part of the line: then nothing is known of the rest
            break
        # Text before a sentence belongs to the sentence before it.
        if sentences:
            sentences[-1] += line[end:start]
            sentences.append(sentence)
        else:
            sentences.append(line[end:start] + sentence)
        end = start + len(sentence)
    rest = line[end:]
    if not sentences:
        return [line]
    sentences[-1] += rest if not rest.strip() else ""
    return [*sentences, rest] if rest.strip() else sentences


def _pieces(sentence: str, fits: Fits) -> list[str]:
    """Split a sentence into pieces that together are the sentence. Repeated splitting in two keeps
    the work small."""
    waiting, pieces = [sentence], []
    while waiting:
        part = waiting.pop()
        if len(part) < 2 or fits(part.strip()):
            pieces.append(part)
            continue
        cut = _cut(part)
        waiting += [part[cut:], part[:cut]]
    return pieces


def _cut(part: str) -> int:
    """Return the place for a split that is nearest to the middle, but not in the outer quarters,
    where a piece would be short."""
    middle, reach = len(part) // 2, len(part) // 4
    for pattern in _CUTS:
        ends = [m.end() for m in pattern.finditer(part, middle - reach, middle + reach)]
        if ends:
            return min(ends, key=lambda end: abs(end - middle))
    return max(1, middle)


def check_can_split() -> None:
    """Raises if the optional package is not installed."""
    if find_spec("sentencex") is None:
        raise ClearheadError(
            "text is split by the package sentencex, which is not installed; get it with: "
            "pip install 'clearhead[serve]'"
        )


def join_sentences(
    text: SplitText, translations: Sequence[AnsweredText], pair: LanguagePair
) -> AnsweredText:
    """Join sentences into one text. Its n-th translation consists of the n-th translation of each
    sentence."""
    n_best = max((len(answer.outputs) for answer in translations), default=0)
    outputs: list[Output] = []
    for rank in range(n_best):
        # A short sentence may have fewer translations than another; then its last one is used.
        chosen = [min(rank, len(answer.outputs) - 1) for answer in translations]
        parts = [
            answer.outputs[choice] for answer, choice in zip(translations, chosen) if choice >= 0
        ]
        written = [
            answer.outputs[choice].text if choice >= 0 else ""
            for answer, choice in zip(translations, chosen)
        ]
        early: list[StopReason] = [part.stop for part in parts if part.stop != "end"]
        outputs.append(
            Output(
                text=text.joined(written, pair.joint),
                tokenizer=parts[0].tokenizer,
                tokens=[token for part in parts for token in part.tokens],
                log_probs=[log_prob for part in parts for log_prob in part.log_probs],
                score=sum(part.score for part in parts),
                stop=early[0] if early else "end",
                confidence=joint_confidence(parts),
                terms=joint_terms(parts),
            )
        )
    tokens_given = [token for answer in translations for token in answer.tokens_read]
    return AnsweredText(tokens_given, sum(answer.n_cut for answer in translations), outputs)
