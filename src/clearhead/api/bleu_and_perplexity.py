"""Measures BLEU and chrF++ of a translator or of the output of any system, and the perplexity of a
language model."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from clearhead.api.locating import recipe_of_run
from clearhead.api.paths import PREPARED
from clearhead.api.results import Evaluation
from clearhead.api.texts import LinesGiven, given_lines
from clearhead.api.tokenized_model import TokenizedModel, as_tokenized_model
from clearhead.config import DataConfig, TrainConfig
from clearhead.config.evaluate import (
    LanguageModelEvaluation,
    ScoringOptions,
    TranslatorEvaluation,
)
from clearhead.data.corpus import open_corpus
from clearhead.data.same_text import check_text_of_run, data_of_run
from clearhead.errors import ClearheadError, ConfigError, DataError, InputError, Message, setting
from clearhead.evaluation.bigram import bigram_baseline
from clearhead.evaluation.perplexity import LARGEST_SHOWN, Perplexity, perplexity
from clearhead.evaluation.translation import (
    check_scoring,
    compare_translations,
    exact_share,
    translate_lines,
    translation_scores,
)
from clearhead.intake.cleaning import split_reader
from clearhead.intake.out_of_step import describe_departure
from clearhead.intake.sources import Cursor, located

stages = logging.getLogger("clearhead.progress")
_log = logging.getLogger("clearhead")
Other = TokenizedModel | LinesGiven | None
"""What a model or an output is compared with."""


def _check_comparison(options: ScoringOptions, against: Other) -> None:
    if against is not None and (options.exact or options.resamples < 2):
        raise InputError(
            f"{setting('against')} compares BLEU and chrF++ by resampling; leave out "
            f"{setting('exact', True)}, and try "
            f"{setting('resamples', ScoringOptions.resamples)}"
        )


def measure_translator(
    model: TokenizedModel,
    options: TranslatorEvaluation,
    split: str | None = None,
    *,
    source: LinesGiven | None = None,
    reference: LinesGiven | None = None,
    against: Other = None,
) -> Evaluation:
    """Measure BLEU and chrF++ of the model's translations, and whether another model's translations
    differ significantly."""
    _check_comparison(options, against)
    if against is not None and not isinstance(against, TokenizedModel | str | Path):
        raise InputError(f"{setting('against')} compares models: give a model, a run or a folder")
    other = None if against is None else as_tokenized_model(against, name="against")
    sources, references, where = pairs_to_translate(model, split, source, reference)
    if not options.exact:  # before translating, which takes its time
        check_scoring(options.tokenize, lowercase=options.lowercase)
    stages.info(f"translating {len(sources):,} lines")
    mine = _translate(model, sources, options)
    theirs = None if other is None else _translate(other, sources, options)
    return _scores(mine, theirs, references, where, options)


def pairs_to_translate(
    model: TokenizedModel,
    split: str | None,
    source: LinesGiven | None,
    reference: LinesGiven | None,
) -> tuple[list[str], list[str], str]:
    """Return the sources, the references, and their origin: by default, a run's own test set."""
    if source is None and reference is None and model.is_run:
        recipe = recipe_of_run(model.folder)
        split, documents = _documents(model.folder, recipe.data, split)
        pairs = list(documents)
        where = f"{split} of {model.folder}{which_chose(recipe.train, split)}"
        return [p[0] for p in pairs], [p[1] for p in pairs], where
    sources = given_lines("source", source, "the lines to translate")
    references = given_lines("reference", reference, "their reference translations")
    _check_in_step(_name("source", source), sources, _name("reference", reference), references)
    if sources == references and sources:
        _log.warning(
            Message(
                f"{setting('source')} and {setting('reference')} hold the same lines, so the "
                "scores say how much the model copies; give the translations of the lines as "
                f"{setting('reference', ...)}"
            )
        )
    return sources, references, str(source) if isinstance(source, str | Path) else "given lines"


def _translate(
    model: TokenizedModel, sources: list[str], options: TranslatorEvaluation
) -> list[str]:
    opened = model.opened
    engine = model.engine(
        opened.translator, options.engine, options.precision, options.engine_folder
    )
    return translate_lines(engine, opened.codec, sources, options.config())


def measure_output(
    options: ScoringOptions,
    *,
    hypothesis: LinesGiven,
    reference: LinesGiven | None = None,
    against: Other = None,
) -> Evaluation:
    """Measure BLEU and chrF++ of the output of any system."""
    _check_comparison(options, against)
    references = given_lines("reference", reference, "the reference translations")
    mine = given_lines("hypothesis", hypothesis, "the output of a system")
    if isinstance(against, TokenizedModel):
        raise InputError(
            f"with {setting('hypothesis')}, {setting('against')} is another output: give a file "
            "or lines"
        )
    theirs = None if against is None else given_lines("against", against, "the other output")
    for name, lines in {"hypothesis": mine, "against": theirs}.items():
        if lines is None:
            continue
        path = hypothesis if name == "hypothesis" else against
        _check_in_step(_name(name, path), lines, _name("reference", reference), references)
        if lines == references:
            _log.warning(
                Message(
                    f"{setting(name)} and {setting('reference')} hold the same lines, so every "
                    "score is that of a perfect output; was one file named twice?"
                )
            )
    where = str(hypothesis) if isinstance(hypothesis, str | Path) else "given lines"
    return _scores(mine, theirs, references, where, options)


def _name(name: str, lines_given: Any) -> str:
    return str(lines_given) if isinstance(lines_given, str | Path) else name


def _check_in_step(name: str, lines: Sequence[str], other_name: str, others: Sequence[str]) -> None:
    """Raises unless both texts have as many lines, with the place where they seem to part."""
    if len(lines) != len(others):
        departure = describe_departure(lines, others, (name, other_name))
        raise DataError(
            f"{name} has {len(lines):,} lines and {other_name} {len(others):,}, and line n of one "
            f"must belong to line n of the other; {departure}"
        )


def _warn_of_strange(outputs: Sequence[str], references: Sequence[str]) -> None:
    """Warn if outputs and references have no letter in common: they are in different scripts."""
    letters, others = (
        {letter for line in lines for letter in line.casefold() if letter.isalnum()}
        for lines in (outputs, references)
    )
    if letters and others and letters.isdisjoint(others):
        _log.warning(
            Message(
                "no letter of the outputs occurs in the references, so the scores mean nothing: "
                f"the references are in another language (they begin with {references[0][:40]!r}, "
                f"the outputs with {outputs[0][:40]!r}); give translations into the language of "
                f"the outputs as {setting('reference', ...)}"
            )
        )


def _scores(
    mine: list[str],
    theirs: list[str] | None,
    references: list[str],
    where: str,
    options: ScoringOptions,
) -> Evaluation:
    _warn_of_strange(mine, references)
    if options.exact:
        share = exact_share(mine, references, lowercase=options.lowercase)
        record = {"name": "exact", "value": share, "n_lines": len(mine)}
        case = ", ignoring case" if options.lowercase else ""
        return Evaluation(
            values={"exact": share},
            records=[record | {"lowercase": options.lowercase}],
            lines=[f"exact   {share:.2%} of {len(mine):,} lines ({where}{case})"],
        )
    resampling: dict[str, Any] = {
        "n_resamples": options.resamples,
        "tokenize": options.tokenize,
        "lowercase": options.lowercase,
    }
    values: dict[str, float] = {}
    records: list[dict[str, Any]] = []
    lines = [f"{where}: {len(mine):,} lines"]
    stages.info(f"scoring, with {options.resamples:,} resamples for the intervals")
    for metric in translation_scores(mine, references, **resampling):
        half = "" if metric.half_interval is None else f" ± {metric.half_interval:.2f}"
        values[metric.name] = metric.value
        records.append(dict(vars(metric)))
        lines.append(f"{metric.name:<8}{metric.value:6.2f}{half}   {metric.signature}")
    if theirs is not None:
        for comparison in compare_translations(mine, theirs, references, **resampling):
            records.append(dict(vars(comparison)))
            figures = f"{comparison.first:6.2f} against {comparison.second:.2f}"
            lines.append(f"{comparison.name:<8}{figures}: {comparison.verdict}")
    return Evaluation(values=values, records=records, lines=lines)


def measure_language_model(
    model: TokenizedModel,
    options: LanguageModelEvaluation,
    split: str | None = None,
    *,
    text: LinesGiven | None = None,
) -> Evaluation:
    """Measure the perplexity of the text, read in windows."""
    if text is None and model.is_run:
        return _perplexity_of_split(model, options, split)
    return _as_evaluation(_perplexity_of_lines(model, options, text))


def _perplexity_of_split(
    model: TokenizedModel, options: LanguageModelEvaluation, split: str | None
) -> Evaluation:
    """Measure the perplexity of a split of the run's own data, read as in training: each document
    alone after a start token, or one stream, in which an end token follows every document."""
    for name in ("document", "start"):
        if getattr(options, name) != getattr(LanguageModelEvaluation, name):
            rule = f"is for {setting('text')}: a split of a run is read as in training"
            raise ConfigError(name, getattr(options, name), rule, "leave it out")
    recipe, ids = recipe_of_run(model.folder), model.opened.ids
    split, documents = _documents(model.folder, recipe.data, split)
    texts = [document[0] for document in documents]
    stages.info(f"reading {split} of {model.folder}")
    alone = recipe.batches.layout == "documents"
    measured = perplexity(
        model.opened.language_model,
        model.tokenizer,
        texts,
        stride=options.stride,
        bos_id=ids.bos if alone else None,
        # A file that was cut in two has no end to be expected.
        eos_id=None if recipe.data.document == "file" else ids.eos,
        joined=not alone,
    )
    where = f"{split} of {model.folder}{which_chose(recipe.train, split)}"
    evaluation = _as_evaluation(measured, {"split": split}, [where])
    return _with_baseline(evaluation, model, split, measured.per_token)


def _with_baseline(
    evaluation: Evaluation, model: TokenizedModel, split: str, reached: float
) -> Evaluation:
    """Add what a table of token pairs reaches on the same text, if the run's data are still
    there."""
    try:
        corpus = open_corpus(data_of_run(model.folder, PREPARED))
        if corpus.tokenizers["text"].sha256 != model.tokenizer.sha256:  # prepared anew
            return evaluation
        compared = bigram_baseline(corpus, split)
    except (ClearheadError, KeyError):  # they are gone, damaged, or of another kind
        return evaluation
    lines = [*evaluation.lines, f"baseline             {compared}"]
    if reached > compared.per_token:
        lines.append(
            "The model is above the baseline's perplexity: it has not learnt more than pairs of "
            "tokens, so train longer."
        )
    (record,) = evaluation.records
    return replace(
        evaluation, records=[{**record, "baseline_per_token": compared.per_token}], lines=lines
    )


def _perplexity_of_lines(
    model: TokenizedModel, options: LanguageModelEvaluation, text: LinesGiven | None
) -> Perplexity:
    lines = given_lines("text", text, "the expected text")
    texts = ["\n".join(lines)] if options.document == "file" else lines
    first = model.opened.codec.start_ids(options.start)
    return perplexity(
        model.opened.language_model,
        model.tokenizer,
        [text for text in texts if text],
        stride=options.stride,
        bos_id=first[0] if first else None,
    )


def _as_evaluation(
    measured: Perplexity, record: Mapping[str, Any] = MappingProxyType({}), head: Sequence[str] = ()
) -> Evaluation:
    per = {
        "token": (measured.per_token, measured.n_tokens),
        "byte": (measured.per_byte, measured.n_bytes),
        "character": (measured.per_character, measured.n_characters),
        "word": (measured.per_word, measured.n_words),
    }
    values = {
        f"perplexity_per_{name}": None if value == math.inf else value
        for name, (value, _) in per.items()
    }
    counts = {f"n_{name}s": n for name, (_, n) in per.items()}
    lines = [f"perplexity per {name:<9}{_shown(name, *figure)}" for name, figure in per.items()]
    figures = {name: value for name, value in values.items() if value is not None}
    return Evaluation(
        values={**figures, "bits_per_byte": measured.bits_per_byte},
        records=[{**record, **values, **counts, "bits_per_byte": measured.bits_per_byte}],
        lines=[*head, *lines, f"bits per byte           {measured.bits_per_byte:>14,.3f}"],
    )


def _shown(name: str, value: float | None, n: int) -> str:
    if value is None:
        return f"{'—':>14}   (no spaces between the {name}s)"
    if value > LARGEST_SHOWN:
        size = "too large to compute" if value == math.inf else f"{value:.1e}"
        return (
            f"{'—':>14}   ({size}: worse than a choice among a million {name}s at random; compare "
            "bits per byte)"
        )
    return f"{value:>14,.3f}   ({n:,} {name}s)"


def _documents(
    folder: Path, config: DataConfig, split: str | None
) -> tuple[str, Iterator[tuple[str, ...]]]:
    """Return the texts of a split of the run's data, cleaned as its training data were. Texts with
    more than data.max_tokens stay, since a test set without its hardest lines gives too good a
    figure."""
    split = split or ("test" if config.paths("test") else "valid")
    reader = split_reader(located(config), split)
    if not reader.inputs:
        remedy = "name one in the recipe, or give the files"
        raise DataError(f"the data of {folder} have no split {split!r}; {remedy}")
    check_text_of_run(folder, config, split)
    documents = reader.documents(Cursor(), {})
    return split, (document.texts for document in documents)


def which_chose(train: TrainConfig, split: str) -> str:
    """Return a remark about a split that has chosen the weights: its figure is too good."""
    chose = split == "valid" and train.publish != "last"
    return ", which also chose the weights" if chose else ""
