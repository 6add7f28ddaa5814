"""How good a model is: a function for each kind of model, and one for the output of any system.
Each has its own options."""

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.api.locating import locate, recipe_of_run
from clearhead.api.paths import PREPARED
from clearhead.api.preparing import is_prepared
from clearhead.api.texts import LinesGiven, given_lines
from clearhead.api.tokenized_model import TokenizedModel
from clearhead.config import DataConfig, TrainConfig
from clearhead.config.checks import as_path
from clearhead.config.evaluate import (
    EncoderEvaluation,
    LanguageModelEvaluation,
    ScoringOptions,
    TranslatorEvaluation,
)
from clearhead.data.corpus import Corpus, open_corpus
from clearhead.data.same_text import check_text_of_run, data_of_run, is_text_of_run
from clearhead.errors import ConfigError, DataError, InputError
from clearhead.evaluation.baseline import baseline, can_measure_baseline
from clearhead.evaluation.classification import accuracy
from clearhead.evaluation.masked import masked_loss
from clearhead.evaluation.perplexity import LARGEST_SHOWN, perplexity
from clearhead.evaluation.translation import (
    check_scoring,
    compare_translations,
    exact_share,
    translate_lines,
    translation_scores,
)
from clearhead.intake.cleaning import split_reader
from clearhead.intake.sources import Cursor, located
from clearhead.models import Classifier, MaskedLM

_stages = logging.getLogger("clearhead.progress")
Other = TokenizedModel | LinesGiven | None
"""What a model or an output is compared with."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Figures by name, as in `evaluation["BLEU"]`; `print` shows them with their intervals."""

    values: dict[str, float]
    records: list[dict[str, Any]]
    """All that is known of each figure, in plain values."""
    lines: list[str]

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def __str__(self) -> str:
        return "\n".join(self.lines)


def _check_comparison(options: ScoringOptions, against: Other) -> None:
    if against is not None and (options.exact or options.resamples < 2):
        raise InputError(
            "against= compares BLEU and chrF++ by resampling; leave out exact=True, and try "
            f"resamples={ScoringOptions.resamples}"
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
    """BLEU and chrF++ of its translations, and whether another model's differ."""
    _check_comparison(options, against)
    other = against
    if other is not None and not isinstance(other, TokenizedModel):
        if not isinstance(other, str | Path):
            raise InputError("against= compares models: give a model, a run or a folder")
        located = locate(other)
        other = TokenizedModel(located.folder, dtype=located.dtype, keeps=located.keeps)
        other.open()
    sources, references, where = pairs_to_translate(model, split, source, reference)
    if not options.exact:  # before translating, which takes its time
        check_scoring(options.tokenize, lowercase=options.lowercase)
    _stages.info(f"translating {len(sources):,} lines")
    mine = _translate(model, sources, options)
    theirs = None if other is None else _translate(other, sources, options)
    return _scores(mine, theirs, references, where, options)


def pairs_to_translate(
    model: TokenizedModel,
    split: str | None,
    source: LinesGiven | None,
    reference: LinesGiven | None,
) -> tuple[list[str], list[str], str]:
    """Sources, references, and where they are from: of a run its own test set, unless given."""
    if source is None and reference is None and model.is_run:
        recipe = recipe_of_run(model.folder)
        split, documents = _documents(model.folder, recipe.data, split)
        pairs = list(documents)
        where = f"{split} of {model.folder}{_chose(recipe.train, split)}"
        return [p[0] for p in pairs], [p[1] for p in pairs], where
    sources = given_lines("source", source, "the lines to translate")
    references = given_lines("reference", reference, "their reference translations")
    if len(sources) != len(references):
        raise DataError(
            f"source has {len(sources)} lines and reference {len(references)}; line n of one must "
            "belong to line n of the other"
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
    """BLEU and chrF++ of the output of any system."""
    _check_comparison(options, against)
    references = given_lines("reference", reference, "the reference translations")
    mine = given_lines("hypothesis", hypothesis, "the output of a system")
    if isinstance(against, TokenizedModel):
        raise InputError("with hypothesis=, against= is another output: give a file or lines")
    theirs = None if against is None else given_lines("against", against, "the other output")
    for name, lines in {"hypothesis": mine, "against": theirs}.items():
        if lines is not None and len(lines) != len(references):
            raise DataError(
                f"{name} has {len(lines)} lines and reference {len(references)}; line n of one "
                "must belong to line n of the other"
            )
    where = str(hypothesis) if isinstance(hypothesis, str | Path) else "given lines"
    return _scores(mine, theirs, references, where, options)


def _scores(
    mine: list[str],
    theirs: list[str] | None,
    references: list[str],
    where: str,
    options: ScoringOptions,
) -> Evaluation:
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
    _stages.info(f"scoring, with {options.resamples:,} resamples for the intervals")
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
    """Perplexity of the text, read in windows."""
    language_model, tokenizer, ids = model.opened.language_model, model.tokenizer, model.opened.ids
    head: list[str] = []
    record: dict[str, Any] = {}
    if text is None and model.is_run:
        for name in ("document", "start"):
            if getattr(options, name) != getattr(LanguageModelEvaluation, name):
                rule = "is for text=: a split of a run is read as in training"
                raise ConfigError(name, getattr(options, name), rule, "leave it out")
        recipe = recipe_of_run(model.folder)
        split, documents = _documents(model.folder, recipe.data, split)
        texts = [texts[0] for texts in documents]
        _stages.info(f"reading {split} of {model.folder}")
        head, record = [f"{split} of {model.folder}{_chose(recipe.train, split)}"], {"split": split}
        # As in training: each document alone behind a start, or one stream, in which an end stands
        # behind every document. A file that was cut in two has no end to be expected.
        alone = recipe.batches.layout == "documents"
        measured = perplexity(
            language_model,
            tokenizer,
            texts,
            stride=options.stride,
            bos_id=ids.bos if alone else None,
            eos_id=None if recipe.data.document == "file" else ids.eos,
            joined=not alone,
        )
    else:
        texts = given_lines("text", text, "the text to be expected")
        texts = ["\n".join(texts)] if options.document == "file" else texts
        texts = [each for each in texts if each]
        first = model.opened.codec.start_ids(options.start)
        measured = perplexity(
            language_model,
            tokenizer,
            texts,
            stride=options.stride,
            bos_id=first[0] if first else None,
        )
    per = {
        "token": (measured.per_token, measured.n_tokens),
        "byte": (measured.per_byte, measured.n_bytes),
        "character": (measured.per_character, measured.n_characters),
        "word": (measured.per_word, measured.n_words),
    }
    values = {f"perplexity_per_{name}": value for name, (value, _) in per.items()}
    counts = {f"n_{name}s": n for name, (_, n) in per.items()}
    lines = [f"perplexity per {name:<9}{_shown(name, *each)}" for name, each in per.items()]
    values = {name: None if value == math.inf else value for name, value in values.items()}
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
        size = "beyond any number" if value == math.inf else f"{value:.1e}"
        return (
            f"{'—':>14}   ({size}: worse than a choice among a million {name}s at random; compare "
            "bits per byte)"
        )
    return f"{value:>14,.3f}   ({n:,} {name}s)"


def measure_encoder(
    model: TokenizedModel,
    options: EncoderEvaluation,
    split: str | None = None,
    *,
    prepared: str | Path | None = None,
) -> Evaluation:
    """Accuracy of a classifier, or loss on masked tokens."""
    encoder, p_mask = model.model, options.p_mask
    assert isinstance(encoder, MaskedLM | Classifier)
    default = data_of_run(model.folder, PREPARED) if model.is_run else None
    if prepared is None and default is None:
        raise InputError("prepared= is missing: the folder of the prepared data")
    folder = as_path("prepared", prepared, default)
    if not is_prepared(folder):
        raise DataError(f"{folder} holds no prepared data; name the data of the run: prepared=…")
    _stages.info(f"measuring on {folder}")
    corpus = open_corpus(folder)
    split = split or ("test" if "test" in corpus.manifest.splits else "valid")
    words = model.tokenizer.library.get_vocab()
    if corpus.tokenizers[next(iter(corpus.tokenizers))].library.get_vocab() != words:
        raise DataError(
            f"{folder} was prepared with a tokenizer that is not the model's; prepare it with "
            "data.tokenizer='file' and data.tokenizer_file naming the model's tokenizer.json"
        )
    chose = ""
    if model.is_run and split == "valid" and is_text_of_run(model.folder, corpus.manifest.inputs):
        chose = _chose(recipe_of_run(model.folder).train, split)
    match corpus.manifest.task:
        case "classification":
            _check_labels(encoder, corpus)
            if p_mask != EncoderEvaluation.p_mask:
                rule = "does not apply to a classifier"
                raise ConfigError("p_mask", p_mask, rule, "leave it out")
            right = accuracy(encoder, corpus, split)
            n_too_long = corpus.facts(split).skipped.get("too-long", 0)
            low, high = right.interval
            values = {"accuracy": right.value}
            record = {"accuracy": right.value, "low": low, "high": high, "n": right.n}
            record |= {"n_too_long": n_too_long}
            left_out = f"; {n_too_long:,} too long, not measured" if n_too_long else ""
            line = (
                f"accuracy  {100 * right.value:.2f} % ({right.n_right:,} of {right.n:,} texts of "
                f"{split}{chose}; 95 % interval {100 * low:.2f} … {100 * high:.2f}"
                f"{left_out})"
            )
        case "masked-lm" if isinstance(encoder, MaskedLM):
            loss = masked_loss(encoder, corpus, split, p_mask=p_mask)
            values = {"loss": loss.per_token, "perplexity": loss.perplexity}
            record = {**values, "n": loss.n_tokens}
            line = (
                f"loss              {loss.per_token:.4f} nats ({loss.n_tokens:,} masked tokens of "
                f"{split}{chose}, {100 * p_mask:g} % of all)\n"
                f"pseudo-perplexity {loss.perplexity:.3f}"
            )
        case task:
            kind = "an encoder" if isinstance(encoder, MaskedLM) else "a classifier"
            raise DataError(
                f"{folder} was prepared for {task}, which does not suit {kind}; name data for "
                + ("masked-lm or " if isinstance(encoder, MaskedLM) else "")
                + "classification"
            )
    lines = [line]
    if corpus.manifest.task == "classification":
        more, told = _baseline(corpus, split, values["accuracy"])
        record, lines = record | more, lines + told
    return Evaluation(values=values, records=[{"split": split, **record}], lines=lines)


def _check_labels(encoder: MaskedLM | Classifier, corpus: Corpus) -> None:
    """Raises unless the data have the model's labels, in its own order."""
    has_head = isinstance(encoder, Classifier)
    if has_head != (corpus.label_as == "class"):
        wanted = "class" if has_head else "token"
        raise DataError(
            f"{corpus.folder} was prepared with data.label_as={corpus.label_as!r}, but the model "
            f"was trained with {wanted!r}; prepare the data with {wanted!r}"
        )
    if has_head and list(encoder.config.labels) != list(corpus.labels):
        raise DataError(
            f"{corpus.folder} has the labels {list(corpus.labels)}, but the model has "
            f"{list(encoder.config.labels)}; prepare the data with the model's, in that order"
        )


def _baseline(corpus: Corpus, split: str, reached: float) -> tuple[dict[str, float], list[str]]:
    """What TF-IDF and logistic regression reach on the same texts: users must know when a
    Transformer is not worth its time."""
    if not can_measure_baseline():
        return {}, ['baseline  not measured; it needs: pip install "clearhead[eval]"']
    _stages.info("measuring a baseline")
    compared = baseline(corpus, split)
    lines = [f"baseline  {compared}"]
    if reached < compared.right.value:
        lines.append(
            "The model is below the baseline: the baseline costs seconds, so use it instead, or "
            "train longer, or start from a pre-trained model."
        )
    return {"baseline": compared.right.value}, lines


def _documents(
    folder: Path, config: DataConfig, split: str | None
) -> tuple[str, Iterator[tuple[str, ...]]]:
    """The texts of a split of the run's data, cleaned as its training data were; those with more
    than data.max_tokens stay, since a test set without its hardest lines flatters."""
    split = split or ("test" if config.paths("test") else "valid")
    reader = split_reader(located(config), split)
    if not reader.inputs:
        remedy = "name one in the recipe, or give the files"
        raise DataError(f"the data of {folder} have no split {split!r}; {remedy}")
    check_text_of_run(folder, config, split)
    documents = reader.documents(Cursor(), {})
    return split, (document.texts for document in documents)


def _chose(train: TrainConfig, split: str) -> str:
    """What to say of a split that has chosen the weights: its figure flatters."""
    chose = split == "valid" and train.publish != "last"
    return ", which also chose the weights" if chose else ""
