"""Fills the open entries of a catalogue: from the memory if it has exactly the same text, otherwise
with a translator."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from clearhead.localise.catalogues import Catalogue, CatalogueEntry, TranslatedForms
from clearhead.localise.masking import MaskedText, mask
from clearhead.localise.menu_keys import MenuKey, with_menu_key, without_menu_key


class Draft(NamedTuple):
    """A translation that a person has to check."""

    text: str
    confidence: float
    """The model's mean probability of a token; calibrated: the chrF++ to expect, from 0 to 1."""
    is_calibrated: bool = False


TranslateMasked = Callable[[Sequence[MaskedText]], Sequence[Draft | None]]
"""A translation of each text; None where there is none."""
TranslationMemory = dict[tuple[str, ...], tuple[str, ...]]
"""The translation of each text; of a text with plural forms, all forms together."""


def memory_of(translated: Iterable[TranslatedForms]) -> TranslationMemory:
    """Return the most frequent translation of each text; of equally frequent translations, the
    first."""
    counts: dict[tuple[str, ...], Counter[tuple[str, ...]]] = {}
    for sources, targets in translated:
        counts.setdefault(sources, Counter())[targets] += 1
    return {sources: targets.most_common(1)[0][0] for sources, targets in counts.items()}


@dataclass
class Filled:
    """The result of filling a catalogue."""

    entries: int
    left_out: int
    """Further entries, whose plural forms the header does not explain."""
    remembered: int = 0
    translated: int = 0
    open: list[str] = field(default_factory=list)
    """The texts of entries for which there is no translation that keeps all spans."""
    again: int = 0
    """Texts that clearhead decoded again, since the translation of another engine had lost a
    span."""
    unsure: list[str] = field(default_factory=list)
    """The texts of entries that stay open because their confidence is too low."""
    terms: int = 0
    """Terms of the glossary in the texts that the model has translated."""
    terms_used: int = 0
    """The number of these terms that the translations use."""

    @property
    def kept(self) -> int:
        """The number of entries that a person had already translated, or begun to."""
        n_open = len(self.open) + len(self.unsure)
        return self.entries - self.remembered - self.translated - n_open


class _Text(NamedTuple):
    """A text to translate, without its spans and its menu key."""

    masked: MaskedText
    menu_key: MenuKey | None


def fill(
    catalogue: Catalogue,
    memory: TranslationMemory,
    translate: TranslateMasked,
    *,
    leave_below: float = 0.0,
) -> Filled:
    """Fill the open entries. Each text is translated once, even if several forms come from it.
    Translations with a confidence below `leave_below` are not written."""
    filled = Filled(len(catalogue.entries), catalogue.left_out)
    waiting: list[CatalogueEntry] = []
    for entry in catalogue.entries:
        if not entry.is_open:
            continue
        if not entry.can_be_read:
            filled.open.append(entry.sources[0])
            continue
        remembered = _from_memory(entry, memory)
        if remembered is None:
            waiting.append(entry)
        else:
            entry.fill(remembered, "from the memory")
            filled.remembered += 1
    texts = {
        (source, entry.rules): _without_spans(source, entry)
        for entry in waiting
        for source in entry.sources
    }
    answers = dict(zip(texts, translate([text.masked for text in texts.values()])))
    for entry in waiting:
        keys = [(source, entry.rules) for source in entry.sources]
        written = [_as_in_catalogue(texts[key], answers[key], catalogue.language) for key in keys]
        if None in written or not all(entry.can_hold(text) for text in written if text):
            filled.open.append(entry.sources[0])
            continue
        drafts = [draft for key in keys if (draft := answers[key]) is not None]
        least = min(drafts, key=lambda draft: draft.confidence)
        if least.confidence < leave_below:
            filled.unsure.append(entry.sources[0])
            continue
        calibrated = ", calibrated" if least.is_calibrated else ""
        note = f"confidence {least.confidence:.2f}{calibrated}"
        entry.fill([text for text in written if text is not None], note)
        filled.translated += 1
    return filled


def _from_memory(entry: CatalogueEntry, memory: TranslationMemory) -> list[str] | None:
    """Return the translation of all forms in the memory, if each keeps its spans."""
    targets, texts = memory.get(entry.sources), list[str]()
    for source, target in zip(entry.sources, targets or ()):
        masked = mask(source, entry.rules)
        text = masked.before + target.strip() + masked.behind
        if not masked.is_kept_by(target) or not entry.can_hold(text):
            return None
        texts.append(text)
    return texts or None


def _without_spans(source: str, entry: CatalogueEntry) -> _Text:
    masked = mask(source, entry.rules)
    pieces, menu_key = without_menu_key(masked.pieces)
    return _Text(replace(masked, pieces=pieces), menu_key)


def _as_in_catalogue(text: _Text, answer: Draft | None, language: str) -> str | None:
    """Return the translation in the form of the catalogue; None if it does not keep every span."""
    if answer is None:
        return None
    masked = mask(answer.text, text.masked.rules)
    pieces = masked.pieces
    if text.menu_key is not None:
        pieces = with_menu_key(pieces, text.menu_key, language)
    written = masked.restore(pieces)
    return written if written.strip() and text.masked.is_kept_by(written) else None
