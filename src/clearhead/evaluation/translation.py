"""Measures BLEU and chrF++ by sacrebleu (the extra `eval`), with intervals, and compares two
models."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clearhead.config import BeamConfig, TranslateConfig
from clearhead.config.batches import Layout
from clearhead.config.evaluate import ScoringOptions
from clearhead.data.corpus import Corpus
from clearhead.data.order import derive_key, permute
from clearhead.decoding.codec import Codec
from clearhead.decoding.text import Engine, OwnEngine, translate_texts
from clearhead.errors import ClearheadError, InputError, setting
from clearhead.evaluation.scripts import bleu_tokenizer
from clearhead.interop.model_folder import TokenIds
from clearhead.models import Classifier, MaskedLM, Model
from clearhead.text.pieces import text_with_numbers

SCORES = ("BLEU", "chrF++")
N_SAMPLES = 3  # that a validation shows
LONGER = 10  # tokens than the longest reference: where a translation that is watched is cut
SIGNIFICANT = 0.05  # a p-value below it is called a difference
_log = logging.getLogger("clearhead")


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One figure, with everything needed to read it."""

    name: str
    value: float
    half_interval: float | None
    """Half of the 95% bootstrap interval around the mean of the resampled scores."""
    signature: str
    """sacrebleu's signature; two figures are comparable only if their signatures are equal."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The figures of a second model and of the first, on the same sentences."""

    name: str
    first: float
    second: float
    p_value: float
    """How often resampling would make such a large difference if there were none (paired
    bootstrap)."""
    signature: str

    @property
    def verdict(self) -> str:
        """Say what the test shows. A difference that is not shown may still exist: more lines, or a
        larger difference, would show it."""
        if self.p_value >= SIGNIFICANT:
            return f"no difference shown (p = {self.p_value:.4f}, paired bootstrap)"
        better = "first" if self.first > self.second else "second"
        return f"the {better} is better (p = {self.p_value:.4f}, paired bootstrap)"


def translate_lines(
    engine: Engine,
    codec: Codec,
    lines: Sequence[str],
    config: TranslateConfig = TranslateConfig(),  # noqa: B008 (frozen)
) -> list[str]:
    """Translate each line, and return the best translations in the order of the lines. A line that
    is too long is cut, with a warning: a test set without its longest lines would flatter the
    model."""
    translations = translate_texts(engine, codec, lines, replace(config, too_long="cut"))
    if n_cut := sum(answer.n_cut > 0 for answer in translations):
        longest = engine.config.max_length
        _log.warning("%d of %d sources were cut to %d tokens", n_cut, len(lines), longest)
    return [answer.texts[0] if answer.texts else "" for answer in translations]


class WatchedTranslations:
    """Sentences of the validation split, chosen at random (seeded). A training run shows their
    translations and, if `scored`, scores them. Decoding is greedy and draws nothing, so the run's
    steps stay the same."""

    def __init__(self, corpus: Corpus, n: int, layout: Layout, *, scored: bool = True) -> None:
        self.scored = scored
        if scored:
            _metrics("13a", lowercase=False)  # before an hour of training, not after
        tokenizers = corpus.tokenizers
        target = tokenizers["target"]
        n_pairs = corpus.facts("valid").documents
        numbers = permute(np.arange(min(n, n_pairs)), n_pairs, derive_key("translations"))
        self.sources, self.references = (
            [
                text_with_numbers(tokenizers[side], ids.tolist())
                for ids in corpus.store("valid", side).documents(numbers)
            ]
            for side in ("source", "target")
        )
        ids = TokenIds.of_run(target, layout, task="pairs", strip=corpus.strips)
        self.codec = Codec(source=tokenizers["source"], target=target, ids=ids)
        # A model that has hardly begun to learn never ends a sentence by itself.
        longest = max(corpus.store("valid", "target").lengths(numbers).tolist())
        self.config = TranslateConfig(beam=BeamConfig(width=1), max_new=longest + LONGER)

    def __call__(self, model: Model) -> dict[str, Any]:
        """Return BLEU and chrF++ by name, and `samples`: the first few sentences with their
        translations."""
        assert not isinstance(model, MaskedLM | Classifier)
        lines = translate_lines(OwnEngine(model), self.codec, self.sources, self.config)
        rows = list(zip(self.sources, lines, self.references))
        scores: list[Metric] = []
        if self.scored:
            rows = rows[:N_SAMPLES]
            scores = translation_scores(lines, self.references, n_resamples=0)
        samples = [dict(zip(("source", "translation", "reference"), row)) for row in rows]
        return {score.name: score.value for score in scores} | {"samples": samples}


def translation_scores(
    translations: Sequence[str],
    references: Sequence[str],
    *,
    n_resamples: int = ScoringOptions.resamples,
    tokenize: str | None = None,
    lowercase: bool = False,
) -> list[Metric]:
    """Measure BLEU and chrF++ of a whole test set. `tokenize` is sacrebleu's name for how BLEU
    finds words; None: the script of the references decides."""
    _check(translations, references)
    metrics = _metrics(tokenize or bleu_tokenizer(references), lowercase)
    if n_resamples > 1 and len(references) > 1:
        # A system is compared with itself to get the interval: `corpus_score` fails if a resample
        # scores 0.
        tested = _test(translations, translations, references, n_resamples, metrics)
        return [
            Metric(name=name, value=score.score, half_interval=float(score.ci), signature=signature)
            for name, (score, _), signature in tested
        ]
    return [
        Metric(
            name=name,
            value=metric.corpus_score(list(translations), [list(references)]).score,
            half_interval=None,
            signature=metric.get_signature().format(),
        )
        for name, metric in metrics.items()
    ]


def check_scoring(tokenize: str | None, *, lowercase: bool) -> None:
    """Raises what scoring with these settings would raise, before anything has been translated."""
    _metrics(tokenize or "13a", lowercase)


def exact_share(
    translations: Sequence[str], references: Sequence[str], *, lowercase: bool = False
) -> float:
    """Return the share of lines that equal their reference, character for character: for notations
    that are either right or wrong. `lowercase` ignores case."""
    _check(translations, references)
    if lowercase:
        translations, references = (list(map(str.casefold, x)) for x in (translations, references))
    return sum(map(str.__eq__, translations, references)) / len(references)


def compare_translations(
    first: Sequence[str],
    second: Sequence[str],
    references: Sequence[str],
    *,
    n_resamples: int = ScoringOptions.resamples,
    tokenize: str | None = None,
    lowercase: bool = False,
) -> list[Comparison]:
    """Tell by paired bootstrap resampling whether two systems differ by more than chance."""
    _check(first, references)
    _check(second, references)
    metrics = _metrics(tokenize or bleu_tokenizer(references), lowercase)
    # This is the lowest p-value that an exact test could give: a bootstrap of one line finds no
    # doubt at all.
    least = min(1.0, 2.0 ** (1 - sum(map(str.__ne__, first, second))))
    return [
        Comparison(
            name=name,
            first=first_score.score,
            second=second_score.score,
            # If nothing ever differs, sacrebleu counts no larger differences.
            p_value=1.0
            if first_score.score == second_score.score
            else max(least, float(second_score.p_value)),
            signature=signature,
        )
        for name, (first_score, second_score), signature in _test(
            first, second, references, n_resamples, metrics
        )
    ]


def _test(
    first: Sequence[str],
    second: Sequence[str],
    references: Sequence[str],
    n_resamples: int,
    metrics: dict[str, Any],
) -> list[tuple[str, tuple[Any, Any], str]]:
    """Return for each metric its name, the results of the two systems, and its signature."""
    from sacrebleu.significance import PairedTest

    systems: list[tuple[str, Sequence[str]]] = [("first", list(first)), ("second", list(second))]
    test = PairedTest(
        systems, metrics, references=[list(references)], test_type="bs", n_samples=n_resamples
    )
    signatures, results = test()
    rows: list[tuple[str, tuple[Any, Any], str]] = []
    for name in metrics:
        key = next(key for key in signatures if key.lower().startswith(name.rstrip("+").lower()))
        first_score, second_score = results[key]
        rows.append((name, (first_score, second_score), signatures[key].format()))
    return rows


def _metrics(tokenize: str, lowercase: bool) -> dict[str, Any]:
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError:
        raise ClearheadError(
            "BLEU and chrF++ need sacrebleu; install it with: pip install 'clearhead[eval]'"
        ) from None
    if tokenize not in BLEU.TOKENIZERS:
        choices = ", ".join(BLEU.TOKENIZERS)
        raise InputError(
            f"{setting('tokenize', tokenize)} is not known to sacrebleu; choose from {choices}"
        )
    try:
        bleu = BLEU(tokenize=tokenize, lowercase=lowercase)
    except (ImportError, RuntimeError, OSError) as error:  # it needs a package, or a download
        reason = " ".join(str(error).split())
        raise ClearheadError(f"{setting('tokenize', tokenize)}: {reason}") from None
    return dict(zip(SCORES, (bleu, CHRF(word_order=2, lowercase=lowercase))))


def chrf() -> Any:
    """Return sacrebleu's chrF++."""
    return _metrics("13a", lowercase=False)[SCORES[1]]


def _check(translations: Sequence[str], references: Sequence[str]) -> None:
    if len(translations) != len(references):
        raise InputError(
            f"there are {len(translations)} translations and {len(references)} references; "
            "line n of one must belong to line n of the other"
        )
    if not translations:
        raise InputError("there is nothing to evaluate; give at least one line")
