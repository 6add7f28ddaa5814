"""Measures the accuracy of a classifier, or the loss of an encoder on masked tokens."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from clearhead.api.bleu_and_perplexity import stages, which_chose
from clearhead.api.locating import recipe_of_run
from clearhead.api.paths import PREPARED
from clearhead.api.preparing import is_prepared
from clearhead.api.results import Evaluation
from clearhead.api.tokenized_model import TokenizedModel
from clearhead.config.checks import as_path
from clearhead.config.evaluate import EncoderEvaluation
from clearhead.data.corpus import Corpus, open_corpus
from clearhead.data.same_text import data_of_run, is_text_of_run
from clearhead.errors import ConfigError, DataError, InputError, setting
from clearhead.evaluation.baseline import baseline, can_measure_baseline
from clearhead.evaluation.classification import Accuracy, confusions
from clearhead.evaluation.masked import masked_loss
from clearhead.models import Classifier, MaskedLM

MOST_SHOWN = 30
"""Labels in the table, those with the most frequent mistake first."""


def measure_encoder(
    model: TokenizedModel,
    options: EncoderEvaluation,
    split: str | None = None,
    *,
    prepared: str | Path | None = None,
) -> Evaluation:
    """Measure the accuracy of a classifier, or the loss on masked tokens."""
    encoder = model.model
    assert isinstance(encoder, MaskedLM | Classifier)
    corpus = _data_of_encoder(model, prepared)
    split = split or ("test" if "test" in corpus.manifest.splits else "valid")
    where = split
    if model.is_run and split == "valid" and is_text_of_run(model.folder, corpus.manifest.inputs):
        where += which_chose(recipe_of_run(model.folder).train, split)
    match corpus.manifest.task:
        case "classification":
            if options.p_mask != EncoderEvaluation.p_mask:
                rule = "does not apply to a classifier"
                raise ConfigError("p_mask", options.p_mask, rule, "leave it out")
            return _accuracy(encoder, corpus, split, where)
        case "masked-lm" if isinstance(encoder, MaskedLM):
            return _masked_loss(encoder, corpus, split, where, options.p_mask)
        case task:
            kind = "an encoder" if isinstance(encoder, MaskedLM) else "a classifier"
            raise DataError(
                f"{corpus.folder} was prepared for {task}, which does not suit {kind}; name data "
                + ("for masked-lm or " if isinstance(encoder, MaskedLM) else "for ")
                + "classification"
            )


def _data_of_encoder(model: TokenizedModel, prepared: str | Path | None) -> Corpus:
    """Return the prepared data that were named, or those of the run. Raises unless they have the
    model's vocabulary."""
    default = data_of_run(model.folder, PREPARED) if model.is_run else None
    if prepared is None and default is None:
        raise InputError(f"{setting('prepared')} is missing; give the folder of the prepared data")
    folder = as_path("prepared", prepared, default)
    if not is_prepared(folder):
        raise DataError(
            f"{folder} holds no prepared data; name the data of the run: {setting('prepared', ...)}"
        )
    stages.info(f"measuring on {folder}")
    corpus = open_corpus(folder)
    vocabulary = model.tokenizer.library.get_vocab()
    if corpus.tokenizers[next(iter(corpus.tokenizers))].library.get_vocab() != vocabulary:
        raise DataError(
            f"{folder} was prepared with a tokenizer that is not the model's; prepare it with "
            "data.tokenizer='file' and data.tokenizer_file naming the model's tokenizer.json"
        )
    return corpus


def _accuracy(encoder: MaskedLM | Classifier, corpus: Corpus, split: str, where: str) -> Evaluation:
    """Return the accuracy of a classifier, together with that of the baseline."""
    _check_labels(encoder, corpus)
    table = confusions(encoder, corpus, split)
    right = Accuracy(n_right=int(table.trace()), n=int(table.sum()))
    n_too_long = corpus.facts(split).skipped.get("too-long", 0)
    low, high = right.interval
    left_out = f"; {n_too_long:,} too long, not measured" if n_too_long else ""
    line = (
        f"accuracy  {100 * right.value:.2f}% ({right.n_right:,} of {right.n:,} texts of {where}; "
        f"95% interval {100 * low:.2f} … {100 * high:.2f}{left_out})"
    )
    record = {"split": split, "accuracy": right.value, "low": low, "high": high, "n": right.n}
    compared, lines = _baseline(corpus, split, right.value)
    by_label, table_lines = _by_label([*corpus.labels], table)
    record |= {"n_too_long": n_too_long, **compared, "labels": by_label}
    return Evaluation(
        values={"accuracy": right.value},
        records=[record],
        lines=[line, *lines, *table_lines],
    )


def _by_label(
    labels: list[str], table: NDArray[np.int64]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return for each label how many of its texts were found, how often it was right where it was
    given, and for which label its texts were taken most often."""
    records: list[dict[str, Any]] = []
    for place, (label, row) in enumerate(zip(labels, table)):
        n, given, right = int(row.sum()), int(table[:, place].sum()), int(row[place])
        mistakes = row.copy()
        mistakes[place] = 0
        taken_for = labels[int(mistakes.argmax())] if mistakes.any() else None
        records.append(
            {
                "label": label,
                "n": n,
                "found": right / n if n else None,
                "right_when_given": right / given if given else None,
                "most_taken_for": taken_for,
                "n_taken_for": int(mistakes.max()),
            }
        )
    shown = sorted(records, key=lambda record: record["n_taken_for"], reverse=True)[:MOST_SHOWN]
    width = max(cell_len(label) for label in ["label", *(record["label"] for record in shown)])
    lines = [f"{'label':<{width}}   texts   found   right when given   most often taken for"]
    for record in shown:
        shares = [
            "—" if record[share] is None else f"{100 * record[share]:.1f}%"
            for share in ("found", "right_when_given")
        ]
        mistaken = record["most_taken_for"]
        mistaken = "—" if mistaken is None else f"{mistaken} ({record['n_taken_for']})"
        name = record["label"] + " " * (width - cell_len(record["label"]))
        lines.append(f"{name}{record['n']:>8,}{shares[0]:>8}{shares[1]:>19}   {mistaken}")
    if len(records) > MOST_SHOWN:
        lines.append(f"… and {len(records) - MOST_SHOWN} labels with fewer mistakes")
    return records, lines


def _masked_loss(
    encoder: MaskedLM, corpus: Corpus, split: str, where: str, p_mask: float
) -> Evaluation:
    loss = masked_loss(encoder, corpus, split, p_mask=p_mask)
    values = {"loss": loss.per_token, "perplexity": loss.perplexity}
    line = (
        f"loss              {loss.per_token:.4f} nats ({loss.n_tokens:,} masked tokens of {where}, "
        f"{100 * p_mask:g}% of all)\npseudo-perplexity {loss.perplexity:.3f}"
    )
    return Evaluation(
        values=values, records=[{"split": split, **values, "n": loss.n_tokens}], lines=[line]
    )


def _check_labels(encoder: MaskedLM | Classifier, corpus: Corpus) -> None:
    """Raises unless the data have the model's labels, in the model's order."""
    has_head = isinstance(encoder, Classifier)
    if has_head != (corpus.label_as == "class"):
        label_as = "class" if has_head else "token"
        raise DataError(
            f"{corpus.folder} was prepared with data.label_as={corpus.label_as!r}, but the model "
            f"was trained with {label_as!r}; prepare the data with {label_as!r}"
        )
    if has_head and list(encoder.config.labels) != list(corpus.labels):
        raise DataError(
            f"{corpus.folder} has the labels {list(corpus.labels)}, but the model has "
            f"{list(encoder.config.labels)}; prepare the data with the model's, in that order"
        )


def _baseline(corpus: Corpus, split: str, reached: float) -> tuple[dict[str, float], list[str]]:
    """Return what TF-IDF and logistic regression reach on the same texts, because users must know
    when a Transformer is not worth its time."""
    if not can_measure_baseline():
        return {}, ['baseline  not measured; it needs: pip install "clearhead[eval]"']
    stages.info("measuring a baseline")
    compared = baseline(corpus, split)
    lines = [f"baseline  {compared}"]
    if reached < compared.right.value:
        lines.append(
            "The model is below the baseline: the baseline costs seconds, so use it instead, or "
            "give more texts with labels."
        )
    return {"baseline": compared.right.value}, lines
