"""How good a model is."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from clearhead.api.evaluation_settings import (
    Kind,
    check_hypothesis,
    check_own_split,
    check_settings,
    given_settings,
)
from clearhead.api.loading import as_text_model, load
from clearhead.api.paths import PREPARED, as_path
from clearhead.api.preparing import is_prepared
from clearhead.api.text_model import TextModel
from clearhead.api.texts import LinesGiven, given_lines
from clearhead.api.trained_run import TrainedRun
from clearhead.config import BeamConfig, DataConfig, TranslateConfig
from clearhead.config.checks import check_at_least
from clearhead.config.decode import LengthPenalty, Start
from clearhead.data.cleaning import split_reader
from clearhead.data.corpus import open_corpus
from clearhead.data.same_text import check_text_of_run, is_text_of_run
from clearhead.data.sources import Cursor, data_root
from clearhead.decoding.engine import EngineName, EnginePrecision
from clearhead.errors import ClearheadError, ConfigError, DataError, InputError
from clearhead.evaluation.classification import accuracy
from clearhead.evaluation.masked import masked_loss
from clearhead.evaluation.perplexity import perplexity
from clearhead.evaluation.translation import (
    N_RESAMPLES,
    check_scoring,
    compare_translations,
    exact_share,
    translate_lines,
    translation_scores,
)
from clearhead.models import MaskedLM

Split = Literal["train", "valid", "test"]
P_MASK = 0.15


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


class _Search(NamedTuple):
    config: TranslateConfig
    engine: EngineName
    precision: EnginePrecision
    engine_folder: str | Path | None


class _Scoring(NamedTuple):
    exact: bool
    resamples: int
    tokenize: str | None
    lowercase: bool

    def settings(self) -> dict[str, Any]:
        return {
            "n_resamples": self.resamples,
            "tokenize": self.tokenize,
            "lowercase": self.lowercase,
        }


def evaluate(
    model: TextModel | str | Path | None = None,
    split: str | None = None,
    *,
    source: LinesGiven | None = None,
    reference: LinesGiven | None = None,
    hypothesis: LinesGiven | None = None,
    against: TextModel | LinesGiven | None = None,
    exact: bool = False,
    tokenize: str | None = None,
    lowercase: bool = False,
    resamples: int = N_RESAMPLES,
    beam: int = 4,
    length_penalty: LengthPenalty = "average",
    alpha: float = 1.0,
    max_new: int = 256,
    batch: int = 32,
    engine: EngineName = "clearhead",
    precision: EnginePrecision = "float32",
    engine_folder: str | Path | None = None,
    text: LinesGiven | None = None,
    document: Literal["line", "file"] = "line",
    stride: int | None = None,
    start: Start = "auto",
    prepared: str | Path | None = None,
    p_mask: float = P_MASK,
) -> Evaluation:
    """How good a model is. Of a run, on its own test set (or the `split`), unless text is given.

    A translator: BLEU and chrF++ (the extra `eval`) of translations of `source` against
    `reference`, with 95 % intervals from `resamples`, and whether it differs from the model
    `against`; with `exact`, the share of lines that are right to the last character. Without a
    model, the `hypothesis`, which is the output of any system, is scored in the same way, and
    `against` is another output. A language model: perplexity of `text`, read in windows that move
    by `stride`. An encoder: accuracy of a classifier, or loss on masked tokens (`p_mask`), on the
    data in `prepared`. How texts are translated, and by which `engine`: see `TextModel.translate`.
    """
    given = given_settings(evaluate, locals())
    if split not in (None, "train", "valid", "test"):
        raise InputError(f"split={split!r} is not a choice; give 'train', 'valid' or 'test'")
    check_at_least("resamples", resamples, 0)
    if against is not None and (exact or resamples < 2):
        raise ClearheadError(
            "against= compares BLEU and chrF++ by resampling; leave out exact, and have "
            f"resamples={N_RESAMPLES}"
        )
    scoring = _Scoring(exact, resamples, tokenize, lowercase)
    if hypothesis is not None:
        check_hypothesis(given)
        return _outputs(hypothesis, against, reference, scoring)
    if model is None:
        raise InputError("MODEL is missing: a model folder or a run; or --hypothesis FILE")
    found = as_text_model(model)
    check_settings(_kind(found), given)
    if found.opened.translates:
        other = against
        if other is not None and not isinstance(other, TextModel):
            if not isinstance(other, str | Path):
                raise InputError("against= compares models: give a model, a run or a folder")
            other = load(other)
        sources, references, where = pairs_to_translate(found, split, source, reference)
        check_at_least("beam", beam, 1)
        how = BeamConfig(width=beam, length_penalty=length_penalty, alpha=alpha)
        config = TranslateConfig(beam=how, max_new=max_new, batch=batch)
        search = _Search(config, engine, precision, engine_folder)
        if not exact:
            check_scoring(tokenize, lowercase=lowercase)  # before translating, which takes its time
        mine = _translate(found, sources, search)
        theirs = None if other is None else _translate(other, sources, search)
        return _scores(mine, theirs, references, where, scoring)
    if document not in ("line", "file"):
        raise ConfigError("document", document, "is not a choice", "try 'line' or 'file'")
    if isinstance(found.model, MaskedLM):
        return _encoder(found, found.model, split, prepared, p_mask)
    if text is None and isinstance(found, TrainedRun):
        check_own_split(given)
    return _perplexity(found, split, text, document, stride, start)


def _kind(model: TextModel) -> Kind:
    if model.opened.translates:
        return "a translator"
    return "an encoder" if isinstance(model.model, MaskedLM) else "a language model"


def pairs_to_translate(
    model: TextModel, split: str | None, source: LinesGiven | None, reference: LinesGiven | None
) -> tuple[list[str], list[str], str]:
    """Sources, references, and where they are from: of a run its own test set, unless given."""
    if source is None and reference is None and isinstance(model, TrainedRun):
        _, split, documents = _documents(model, split)
        pairs = list(documents)
        where = f"{split} of {model.folder}{_chose(model, split)}"
        return [p[0] for p in pairs], [p[1] for p in pairs], where
    sources = given_lines("source", source, "the lines to translate")
    references = given_lines("reference", reference, "their reference translations")
    if len(sources) != len(references):
        raise DataError(
            f"source has {len(sources)} lines and reference {len(references)}; line n of one must "
            "belong to line n of the other"
        )
    return sources, references, str(source) if isinstance(source, str | Path) else "given lines"


def _translate(model: TextModel, sources: list[str], search: _Search) -> list[str]:
    opened = model.opened
    runs = model.engine(opened.translator, search.engine, search.precision, search.engine_folder)
    return translate_lines(runs, opened.codec, sources, search.config)


def _outputs(
    hypothesis: LinesGiven,
    against: TextModel | LinesGiven | None,
    reference: LinesGiven | None,
    scoring: _Scoring,
) -> Evaluation:
    """Scores the output of any system: no model is needed."""
    references = given_lines("reference", reference, "the reference translations")
    mine = given_lines("hypothesis", hypothesis, "the output of a system")
    if isinstance(against, TextModel):
        raise InputError("with --hypothesis, --against is another output: give a file or lines")
    theirs = None if against is None else given_lines("against", against, "the other output")
    for name, lines in {"hypothesis": mine, "against": theirs}.items():
        if lines is not None and len(lines) != len(references):
            raise DataError(
                f"{name} has {len(lines)} lines and reference {len(references)}; line n of one "
                "must belong to line n of the other"
            )
    where = str(hypothesis) if isinstance(hypothesis, str | Path) else "given lines"
    return _scores(mine, theirs, references, where, scoring)


def _scores(
    mine: list[str],
    theirs: list[str] | None,
    references: list[str],
    where: str,
    scoring: _Scoring,
) -> Evaluation:
    if scoring.exact:
        share = exact_share(mine, references, lowercase=scoring.lowercase)
        record = {"name": "exact", "value": share, "n_lines": len(mine)}
        case = ", ignoring case" if scoring.lowercase else ""
        return Evaluation(
            values={"exact": share},
            records=[record | {"lowercase": scoring.lowercase}],
            lines=[f"exact   {share:.2%} of {len(mine):,} lines ({where}{case})"],
        )
    values: dict[str, float] = {}
    records: list[dict[str, Any]] = []
    lines = [f"{where}: {len(mine):,} lines"]
    for metric in translation_scores(mine, references, **scoring.settings()):
        half = "" if metric.half_interval is None else f" ± {metric.half_interval:.2f}"
        values[metric.name] = metric.value
        records.append(dict(vars(metric)))
        lines.append(f"{metric.name:<8}{metric.value:6.2f}{half}   {metric.signature}")
    if theirs is not None:
        for each in compare_translations(mine, theirs, references, **scoring.settings()):
            records.append(dict(vars(each)))
            lines.append(
                f"{each.name:<8}{each.first:6.2f} against {each.second:.2f}: {each.verdict}"
            )
    return Evaluation(values=values, records=records, lines=lines)


def _perplexity(
    model: TextModel,
    split: str | None,
    text: LinesGiven | None,
    document: Literal["line", "file"],
    stride: int | None,
    start: Start,
) -> Evaluation:
    if stride is not None:
        check_at_least("stride", stride, 1)
    language_model, tokenizer, ids = model.opened.language_model, model.tokenizer, model.opened.ids
    head: list[str] = []
    record: dict[str, Any] = {}
    if text is None and isinstance(model, TrainedRun):
        config, split, documents = _documents(model, split)
        texts = [texts[0] for texts in documents]
        head, record = [f"{split} of {model.folder}{_chose(model, split)}"], {"split": split}
        # As in training: each document alone behind a start, or one stream, in which an end stands
        # behind every document. A file that was cut in two has no end to be expected.
        alone = model.recipe.batches.layout == "documents"
        found = perplexity(
            language_model,
            tokenizer,
            texts,
            stride=stride,
            bos_id=ids.bos if alone else None,
            eos_id=None if config.document == "file" else ids.eos,
            joined=not alone,
        )
    else:
        texts = given_lines("text", text, "the text to be expected")
        texts = ["\n".join(texts)] if document == "file" else texts
        texts = [each for each in texts if each]
        first = model.opened.codec.start_ids(start)
        found = perplexity(
            language_model, tokenizer, texts, stride=stride, bos_id=first[0] if first else None
        )
    per = {
        "token": (found.per_token, found.n_tokens),
        "byte": (found.per_byte, found.n_bytes),
        "character": (found.per_character, found.n_characters),
        "word": (found.per_word, found.n_words),
    }
    values = {f"perplexity_per_{name}": value for name, (value, _) in per.items()}
    counts = {f"n_{name}s": n for name, (_, n) in per.items()}
    lines = [
        f"perplexity per {name:<9}{'—':>14}   (no blanks between the {name}s)"
        if value is None
        else f"perplexity per {name:<9}{value:>14,.3f}   ({n:,} {name}s)"
        for name, (value, n) in per.items()
    ]
    figures = {name: value for name, value in values.items() if value is not None}
    return Evaluation(
        values={**figures, "bits_per_byte": found.bits_per_byte},
        records=[{**record, **values, **counts, "bits_per_byte": found.bits_per_byte}],
        lines=[*head, *lines, f"bits per byte           {found.bits_per_byte:>14,.3f}"],
    )


def _encoder(
    model: TextModel,
    encoder: MaskedLM,
    split: str | None,
    prepared: str | Path | None,
    p_mask: float,
) -> Evaluation:
    default = PREPARED / model.folder.resolve().name if isinstance(model, TrainedRun) else None
    if prepared is None and default is None:
        raise InputError(
            "prepared= is missing: the folder of the prepared data (--prepared FOLDER)"
        )
    folder = as_path("prepared", prepared, default)
    if not is_prepared(folder):
        raise DataError(
            f"{folder} holds no prepared data; name what the run was trained on: --prepared FOLDER"
        )
    corpus = open_corpus(folder)
    split = split or ("test" if "test" in corpus.manifest.splits else "valid")
    words = model.tokenizer.library.get_vocab()
    if corpus.tokenizers[next(iter(corpus.tokenizers))].library.get_vocab() != words:
        raise DataError(
            f"{folder} was prepared with another tokenizer than the model's; prepare it with "
            "data.tokenizer='file' and data.tokenizer_file naming the model's tokenizer.json"
        )
    own = isinstance(model, TrainedRun) and is_text_of_run(model.folder, corpus.manifest.inputs)
    chose = _chose(model, split) if own else ""
    match corpus.manifest.task:
        case "classification":
            if p_mask != P_MASK:
                raise InputError("--p-mask does not apply to a classifier; leave it out")
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
        case "masked-lm":
            loss = masked_loss(encoder, corpus, split, p_mask=p_mask)
            values = {"loss": loss.per_token, "perplexity": loss.perplexity}
            record = {**values, "n": loss.n_tokens}
            line = (
                f"loss              {loss.per_token:.4f} nats ({loss.n_tokens:,} masked tokens of "
                f"{split}{chose}, {100 * p_mask:g} % of all)\n"
                f"pseudo-perplexity {loss.perplexity:.3f}"
            )
        case task:
            raise DataError(
                f"{folder} was prepared for {task}, which is not for an encoder; name data of the "
                "task masked-lm or classification"
            )
    return Evaluation(values=values, records=[{"split": split, **record}], lines=[line])


def _documents(
    run: TrainedRun, split: str | None
) -> tuple[DataConfig, str, Iterator[tuple[str, ...]]]:
    """The texts of a split of the run's data, cleaned as its training data were; those with more
    than data.max_tokens stay, since a test set without its hardest lines flatters."""
    config = run.recipe.data
    split = split or ("test" if config.paths("test") else "valid")
    reader = split_reader(config, split, data_root(config))
    if not reader.inputs:
        remedy = "name one in the recipe, or give the files"
        raise DataError(f"the data of {run.folder} have no split {split!r}; {remedy}")
    check_text_of_run(run.folder, config, split)
    documents = reader.documents(Cursor(), {})
    return config, split, (document.texts for document in documents)


def _chose(model: TextModel, split: str) -> str:
    """What to say of a split that has chosen the weights: its figure flatters."""
    run = model if isinstance(model, TrainedRun) and split == "valid" else None
    if run is None or run.recipe.train.publish == "last":
        return ""
    return ", which also chose the weights"
