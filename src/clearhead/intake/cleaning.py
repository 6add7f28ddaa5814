"""Finds defects of a corpus: documents that can be read but should not be learnt. `new` counts them
and shows samples. Documents with defects that `data.clean` names are removed, and every removed
document is listed.

There are two passes. The first finds what is usual in the corpus (languages, the ratio of lengths,
the sentences of the other splits); the second compares every document with it."""

import math
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

from clearhead.config.data import DEFECTS, INVALID_INPUT, SPLITS, DataConfig, Defect
from clearhead.intake.equality import same_key
from clearhead.intake.formats import Document, read_documents
from clearhead.intake.invalid_input import Place, Sieve
from clearhead.intake.languages import Languages, can_tell_languages, length_in_letters
from clearhead.intake.sources import Reader, find_inputs
from clearhead.intake.unpack import Input, opened

REPORT = "removed.tsv"
N_SAMPLE = 3000  # documents in which languages and lengths are learnt
ABSURD = math.log(3)  # of the usual ratio of lengths, at least
SPREADS = 5  # and so many times the usual spread of its logarithm
MANY_SWAPPED = 0.2  # of the documents: more are no accident, and worth swapping back
SMOOTHING = 2  # characters: "Hi." and "嗨。" differ by less than their lengths say

MEANINGS: dict[Defect, str] = {
    "copy": "source and target are the same",
    "swapped": "source and target have changed places",
    "language": "a side is in another language",
    "markup": "broken markup",
    "length": "the lengths of the sides do not fit each other",
    "duplicate": "the same as an earlier one",
    "overlap": "in training, and held out elsewhere",
}


class DefectiveDocument(NamedTuple):
    """One document with a defect: its kind, the reason, the place and the texts."""

    kind: Defect
    reason: str
    place: Place
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Defects:
    """The defects that were found in a corpus."""

    findings: list[DefectiveDocument] = field(default_factory=list)
    documents: int = 0
    without: tuple[Defect, ...] = ()
    """Kinds that were not searched for, because an optional package is missing."""
    shift: str = ""
    """Where the lines of pairs no longer belong together, if they seem to be shifted."""

    def __repr__(self) -> str:
        found = ", ".join(f"{n:,} {kind}" for kind, n in self.counts.items()) or "none"
        return f"Defects(in {self.documents:,} documents: {found})"

    @property
    def counts(self) -> dict[Defect, int]:
        """Count the documents that have each kind of defect."""
        counted = Counter(finding.kind for finding in self.findings)
        return {kind: counted[kind] for kind in DEFECTS if counted[kind]}

    def of(self, kind: Defect) -> list[DefectiveDocument]:
        """Return the findings of one kind."""
        return [finding for finding in self.findings if finding.kind == kind]


def find_defects(config: DataConfig) -> Defects:
    """Find every document that has a defect, with the first kind that it shows, in the order of the
    splits and files."""
    inputs = {
        split: find_inputs(config, split) for split in SPLITS if split not in config.held_out_splits
    }
    stamps = tuple(
        path.stat().st_mtime_ns
        for split_inputs in inputs.values()
        for i in split_inputs
        for path in i.paths
    )
    frozen = tuple((split, tuple(split_inputs)) for split, split_inputs in inputs.items())
    return _find(replace(config, clean=()), frozen, stamps)


@lru_cache(maxsize=2)
def _find(
    config: DataConfig,
    inputs: tuple[tuple[str, tuple[Input, ...]], ...],
    stamps: tuple[int, ...],  # noqa: ARG001 (a file that has changed is read again)
) -> Defects:
    if config.document == "file":  # a book is not compared with another
        return Defects()
    by_split = dict(inputs)
    usual = _learn(config, by_split)
    findings: list[DefectiveDocument] = []
    n = 0
    for split, split_inputs in by_split.items():
        seen: set[tuple[int | str, ...]] = set()
        # A file that is named twice is not a duplicate of itself.
        for document in _read(config, tuple(dict.fromkeys(split_inputs))):
            n += 1
            defect = usual.judge(document, split, seen)
            if defect is not None:
                findings.append(DefectiveDocument(*defect, document.place, document.texts))
    untold = config.task == "pairs" and not can_tell_languages()
    return Defects(findings, n, ("swapped", "language") if untold else ())


def _read(config: DataConfig, inputs: tuple[Input, ...]) -> Iterator[Document]:
    lenient = replace(config, skip=INVALID_INPUT, held_out=0.0, held_out_test=0.0)
    for input_files in inputs:
        label = () if input_files.label is None else (input_files.label,)
        with opened(input_files) as files:
            for document in read_documents(files, "train", Sieve(lenient)):
                yield Document(document.texts + label, document.place)


@dataclass(frozen=True)
class _Usual:
    """The languages, lengths and sentences that are usual in a corpus."""

    pairs: bool
    languages: Languages | None
    ratio: float
    """The median of the logarithms of the ratios of lengths."""
    limit: float
    elsewhere: Mapping[str, frozenset[int]]
    """The sentences of each split that is used for measuring; they must not be in the training
    split."""

    def judge(
        self, document: Document, split: str, seen: set[tuple[int | str, ...]]
    ) -> tuple[Defect, str] | None:
        texts = document.texts
        keys = tuple(map(same_key, texts[: 2 if self.pairs else 1]))
        if self.pairs and (defect := self._judge_pair(texts, keys)):
            return defect
        whole = keys + texts[len(keys) :]  # the same text under two labels is two documents
        if whole in seen:
            return "duplicate", "stands earlier, too"
        seen.add(whole)
        if not self.elsewhere[split].isdisjoint(keys):
            return "overlap", f"in {split}, and held out elsewhere"
        return None

    def _judge_pair(
        self, texts: tuple[str, ...], keys: tuple[int, ...]
    ) -> tuple[Defect, str] | None:
        if keys[0] == keys[1] and any(map(str.isalpha, texts[0])):
            if self.languages is not None and (other := self.languages.third(texts[0])):
                return "language", f"source and target are the same, in {other}"
            return "copy", "source and target are the same"
        if self.languages is not None:
            if self.languages.swapped(texts):
                return "swapped", f"in {self.languages.sides[1]} and {self.languages.sides[0]}"
            for side, name in enumerate(("source", "target")):
                if other := self.languages.other_than(side, texts[side]):
                    own = self.languages.sides[side]
                    return "language", f"the {name} is in {other}, not in {own}"
        if why := broken_markup(texts[0], texts[1]):
            return "markup", why
        for side, name in enumerate(("source", "target")):
            if is_placeholder(texts[side]) and _says_something(texts[1 - side]):
                return "length", f"the {name} is a placeholder"
        away = _log_ratio(texts) - self.ratio
        if abs(away) > self.limit:
            side = "target" if away > 0 else "source"
            return "length", f"the {side} is {math.exp(abs(away)):.1f} times longer than usual"
        return None


def _learn(config: DataConfig, by_split: Mapping[str, tuple[Input, ...]]) -> _Usual:
    pairs = config.task == "pairs"
    valid, test = (
        frozenset(
            same_key(text)
            for document in _read(config, by_split.get(split, ()))
            for text in document.texts[: 2 if pairs else 1]
        )
        for split in ("valid", "test")
    )
    elsewhere = {"train": valid | test, "valid": test, "test": frozenset[int]()}
    if not pairs:
        return _Usual(False, None, 0.0, math.inf, elsewhere)
    # Sampled from all parts of the files: one of so many lines, by the sizes of the files.
    total = sum(part.size for part in by_split["train"])
    stride = max(1, total // 60 // N_SAMPLE)  # assuming lines of about 60 bytes
    sample = [
        document.texts
        for number, document in enumerate(_read(config, by_split["train"]))
        if number % stride == 0
    ]
    ratios = [_log_ratio(texts) for texts in sample] or [0.0]
    middle = median(ratios)
    deviation = median(abs(ratio - middle) for ratio in ratios)
    spread = 1.4826 * deviation  # the standard deviation, if the ratios are normally distributed
    languages = Languages(sample[:N_SAMPLE]) if sample and can_tell_languages() else None
    return _Usual(True, languages, middle, max(ABSURD, SPREADS * spread), elsewhere)


def _log_ratio(texts: tuple[str, ...]) -> float:
    source, target = (length_in_letters(text) + SMOOTHING for text in texts[:2])
    return math.log(target / source)


PLACEHOLDERS = (
    *("n/a", "na", "tbd", "tbc", "todo", "null", "none", "nan", "xxx"),
    *("#n/a", "#ref!", "#name?", "#value!", "#null!", "#num!", "#div/0!"),
)
"""What translators and spreadsheets write into a cell without a translation."""


def is_placeholder(text: str) -> bool:
    """Tell whether a text says nothing by itself: a word that marks a missing text, or only
    signs."""
    plain = text.strip().casefold()
    return plain in PLACEHOLDERS or not any(map(str.isalnum, plain))


def _says_something(text: str) -> bool:
    """Tell whether a text is a sentence: a few words, or as many characters without spaces."""
    return len(text.split()) > 3 or (" " not in text.strip() and sum(map(str.isalpha, text)) > 5)


# An attribute has an equals sign; `<named tuple>` is a name.
_TAG = re.compile(r"<(/?)([A-Za-z][\w:-]*)(?:\s*/?|\s[^<>=]*=[^<>]*)>")
_CUT_TAG = re.compile(r"</?[A-Za-z][^<>]*$")
_TWICE = re.compile(r"&amp;#?\w+;")
_SPACED = re.compile(r"<\s+/\s*[A-Za-z]\w*\s*>|<\s*/\s+[A-Za-z]\w*\s*>")


def broken_markup(source: str, target: str) -> str | None:
    """Describe what is wrong with the tags of a pair. Tags that both sides have alike are accepted:
    `<module>` may be a name."""
    tags = [Counter(map(str.lower, _names(text))) for text in (source, target)]
    if tags[0] != tags[1]:
        name = next(iter((tags[0] - tags[1]) + (tags[1] - tags[0])))
        return f"the tag <{name}> does not occur equally often on both sides"
    for text in (source, target):
        opened_tags = Counter[str]()
        for closing, name in _TAG.findall(text):
            if closing and not opened_tags[name]:
                return f"</{name}> closes nothing"
            opened_tags[name] += -1 if closing else 1
    if bool(_CUT_TAG.search(source)) != bool(_CUT_TAG.search(target)):
        return "a tag is cut off"
    for what, pattern in (
        ("an entity is escaped twice", _TWICE),
        ("a tag contains spaces", _SPACED),
    ):
        if pattern.search(source) or pattern.search(target):
            return what
    if source.count("`") % 2 != target.count("`") % 2:
        return "a ` has no partner"
    return None


def _names(text: str) -> list[str]:
    return [closing + name for closing, name in _TAG.findall(text)]


def describe_defects(defects: Defects, n_samples: int = 2, width: int = 80) -> list[str]:
    """Describe the counts, with samples of each kind, so that the user can decide."""
    if not defects.documents:
        summary = "Defects: not looked for, since each file is one text."
    elif not defects.findings:
        summary = f"Defects: none found in {defects.documents:,} documents."
    else:
        counts = ", ".join(f"{n:,} {kind}" for kind, n in defects.counts.items())
        summary = f"Defects: of {defects.documents:,} documents, {counts}."
    if defects.shift:
        seen = summary.removeprefix("Defects: ")
        summary = (
            "Defects: the lines seem shifted, so that pairs do not belong together: repair the "
            f"files, then make the recipe again. Besides these: {seen}"
        )
    if defects.without:
        summary += (
            f" Not looked for: {', '.join(defects.without)} (they need py3langid: "
            'pip install "clearhead[corpus]").'
        )
    lines = textwrap.wrap(summary, width)
    n_swapped = defects.counts.get("swapped", 0)
    if n_swapped >= MANY_SWAPPED * max(1, defects.documents):
        share = n_swapped / defects.documents
        how_many = "half" if 0.4 <= share <= 0.6 else f"{share:.0%}"
        note = (
            f"  {how_many} of the rows have changed sides: swap them back; removing them would lose"
            f" {n_swapped:,} good pairs"
        )
        lines += textwrap.wrap(note, width, subsequent_indent="  ")
    for kind in defects.counts:
        lines.append(f"  {kind}: {MEANINGS[kind]}")
        for finding in defects.of(kind)[:n_samples]:
            where = f"    {finding.place.path.name}, {finding.place.where}: "
            share = max(10, (width - len(where)) // len(finding.texts) - 3)
            texts = map(_on_one_line, finding.texts)
            shown = [text if len(text) <= share else f"{text[: share - 1]}…" for text in texts]
            lines.append(where + " | ".join(shown))
    return lines


def split_reader(config: DataConfig, split: str) -> Reader:
    """Read the documents of a split, without those that `data.clean` removes."""
    return Reader(find_inputs(config, split), config, split, removed=removed(config))


def removed(config: DataConfig) -> dict[Place, str]:
    """Return the kind of defect of every document that is left out."""
    if not config.clean:
        return {}
    _check_packages(config)
    findings = find_defects(config).findings
    return {finding.place: finding.kind for finding in findings if finding.kind in config.clean}


def _check_packages(config: DataConfig) -> None:
    from clearhead.intake.unpack import need

    if config.task == "pairs" and {"swapped", "language"} & set(config.clean):
        need("py3langid", Path("data.clean"))


def removal_report(config: DataConfig) -> str:
    """Write a line for every removed document: kind, reason, file, line, texts."""
    lines = ["kind\treason\tfile\tline\t" + "\t".join(config.sides)]
    for finding in find_defects(config).findings:
        if finding.kind in config.clean:
            texts = map(_on_one_line, finding.texts)
            place = (str(finding.place.path), str(finding.place.number))
            lines.append("\t".join((finding.kind, finding.reason, *place, *texts)))
    return "\n".join(lines) + "\n"


def _on_one_line(text: str) -> str:
    """Return a cell as one line. A cell of a table may contain line ends and tabs."""
    return " ".join(text.split())
