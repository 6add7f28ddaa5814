"""Chooses sizes for your own text, by the policy in `sizes.py`. It prepares a sample of the text,
and times a few real steps of each candidate on this machine. `size_reasons.py` explains the
choices."""

import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from clearhead.config import Recipe, with_values
from clearhead.config.data import Task
from clearhead.config.train import OptimizerKind
from clearhead.data.corpus import Corpus, open_corpus
from clearhead.data.prepare import prepare
from clearhead.data.shards import Job
from clearhead.errors import DataError
from clearhead.intake.survey import Survey, survey
from clearhead.training.sizes import (
    BATCH_TOKENS,
    BATCH_TOKENS_AT_MOST,
    DROPOUT_OF,
    DROPOUTS,
    FOR_STEPS,
    INITIAL_WEIGHTS,
    MAX_SHARE_OF_WATCHING,
    MIN_SPEEDUP,
    MUON_LR,
    MUON_PASSES,
    MUON_WIDTH,
    N_WATCHED_SENTENCES,
    PAIRS_AT_LEAST,
    PASSES_ENOUGH,
    PASSES_WANTED,
    SECONDS_PER_DECODING_STEP,
    SIZES,
    STEPS_AT_LEAST,
    TELLS_3_POINTS,
    TOO_LONG,
    UPDATES_KEPT,
    UPDATES_WANTED,
    VALIDATIONS,
    Size,
    held_out_of_pairs,
    held_out_of_tokens,
    vocabulary_for,
)
from clearhead.training.trials import Trials

Clock = Callable[[], float]


@dataclass(frozen=True, kw_only=True)
class MeasuredText:
    """The facts about the text once a sample of it has been prepared."""

    template: Recipe
    """The template that the text was measured for."""
    survey: Survey
    corpus: Corpus
    vocab_size: int
    tokens: int
    """The number of tokens to predict in one pass: those of the target, if there is one; the labels
    of a classifier; the masked tokens, if some are masked."""
    read: int
    """The tokens of the larger side."""
    longest: int
    """Tokens of the longest side of a document."""
    too_long: float
    """Share of the sample's documents that have more than `lengths` allows."""


class SizeCandidate(NamedTuple):
    """A model and its batches, with the cost of a step."""

    size: Size
    shape: dict[str, Any]
    seconds: float
    targets: float

    def updates(self, minutes: float) -> int:
        """The number of updates that the time allows."""
        return int(FOR_STEPS * 60 * minutes / self.seconds)

    @property
    def speed(self) -> float:
        """The number of predicted tokens per second."""
        return self.targets / self.seconds


@dataclass(frozen=True, kw_only=True)
class Sized:
    """The chosen values, and the facts on which the choice is based."""

    values: dict[str, Any]
    """The values by the recipe's dotted keys."""
    text: MeasuredText
    chosen: SizeCandidate
    fits: Size
    """What the text alone would ask for."""
    minutes: float
    enough: int
    """Updates after which more would teach little."""
    passes: float
    """How often the model sees the text."""
    about_threads: tuple[str, ...] = ()
    """A sentence on the numbers of threads that were tried, and their times."""


def size_recipe(
    template: Recipe,
    minutes: float,
    clock: Clock = time.perf_counter,
    threads: int | None = None,
) -> Sized:
    """Choose values for the template's keys. Its paths are absolute paths of the text. `clock`
    counts the minutes: `time.process_time` counts those of the processor."""
    trials = Trials(threads, clock)
    with tempfile.TemporaryDirectory(prefix="clearhead-") as folder:
        text = _measure(template, Path(folder))
        table = SIZES if template.train.start_from is None else (_own_size(template),)
        fits = next(number for number, size in enumerate(table) if text.read <= size.tokens)
        number, passes = fits, PASSES_WANTED[template.data.task]
        while True:
            chosen = _candidate(text, table[number], BATCH_TOKENS, minutes, trials)
            possible = chosen.updates(minutes)
            enough_passes = possible * chosen.targets >= passes * text.tokens
            if number == 0 or (possible >= UPDATES_WANTED and enough_passes):
                break
            number -= 1
        chosen = _with_larger_batches(text, chosen, minutes, trials)
    sized = _sized(text, chosen, minutes, table[fits])
    return replace(sized, about_threads=tuple(trials.reasons))


def _own_size(template: Recipe) -> Size:
    """Return the size of the model from which training starts."""
    model = template.model
    assert model is not None
    shape = (model.d_model, model.n_layers, model.n_heads, model.d_ff)
    return Size(float("inf"), *shape, template.train.lr)


def _candidate(
    text: MeasuredText, size: Size, batch_tokens: int, minutes: float, trials: Trials
) -> SizeCandidate:
    """Return a candidate with Muon, if it suits the task, the width, and how often the text is
    seen; else with AdamW, or with the optimizer of the model that training starts from."""
    train = text.template.train
    if (
        train.start_from is None
        and text.template.data.task == "pairs"
        and (size.d_model <= MUON_WIDTH)
    ):
        candidate = _timed(text, size, batch_tokens, ("muon", MUON_LR), trials)
        if candidate.updates(minutes) * candidate.targets < MUON_PASSES * text.tokens:
            return candidate
    return _timed(text, size, batch_tokens, (train.optimizer, size.lr), trials)


def _timed(
    text: MeasuredText,
    size: Size,
    batch_tokens: int,
    optimizer: tuple[OptimizerKind, float],
    trials: Trials,
) -> SizeCandidate:
    name, lr = optimizer
    shape = _shape(text, size, batch_tokens) | {"train.optimizer": name, "train.lr": lr}
    return SizeCandidate(size, shape, *_time(text, shape, trials))


def _with_larger_batches(
    text: MeasuredText, chosen: SizeCandidate, minutes: float, trials: Trials
) -> SizeCandidate:
    """Double the batch as long as that makes the machine faster and leaves enough updates. For the
    same number of tokens, more updates teach more, so a batch stays small if a larger one is not
    faster."""
    batch_tokens = BATCH_TOKENS
    while batch_tokens < BATCH_TOKENS_AT_MOST and chosen.updates(minutes) >= UPDATES_KEPT:
        batch_tokens *= 2
        larger = _candidate(text, chosen.size, batch_tokens, minutes, trials)
        if larger.updates(minutes) < UPDATES_KEPT or larger.speed < MIN_SPEEDUP * chosen.speed:
            break
        chosen = larger
    return chosen


def _sized(text: MeasuredText, chosen: SizeCandidate, minutes: float, fits: Size) -> Sized:
    """Return the values of a candidate, and of the intervals at which it is validated and saved."""
    task, targets = text.template.data.task, chosen.targets
    enough = max(STEPS_AT_LEAST, int(PASSES_ENOUGH[task] * text.tokens / targets))
    steps = max(1, min(chosen.updates(minutes), enough))
    passes = steps * targets / text.tokens
    dropout = next(share for least, share in DROPOUTS if passes >= least)
    often = max(1, steps // VALIDATIONS)
    rhythm = {
        "model.p_dropout": DROPOUT_OF.get(task, dropout),
        "train.steps": steps,
        "train.warmup_steps": min(1000, often),
        "train.validate_every": often,
        "train.save_every": often,
        "train.log_every": max(1, min(50, often)),
    }
    if task == "pairs" and _can_watch(chosen.shape["data.max_tokens"], chosen.seconds, minutes):
        rhythm["train.translate_valid"] = N_WATCHED_SENTENCES
    return Sized(
        values={**chosen.shape, **rhythm},
        text=text,
        chosen=chosen,
        fits=fits,
        minutes=minutes,
        enough=enough,
        passes=passes,
    )


def _can_watch(longest: int, seconds: float, minutes: float) -> bool:
    """Tell whether validations may translate: a model that has hardly begun to learn generates
    texts of the highest length."""
    a_token_of_each = SECONDS_PER_DECODING_STEP + seconds * N_WATCHED_SENTENCES / BATCH_TOKENS
    time_for_it = MAX_SHARE_OF_WATCHING * 60 * minutes
    there = find_spec("sacrebleu") is not None
    return there and VALIDATIONS * longest * a_token_of_each <= time_for_it


def _measure(template: Recipe, folder: Path) -> MeasuredText:
    surveyed = survey(template.data, folder)
    has_tokenizer = template.data.tokenizer == "file"
    vocab_size = None if has_tokenizer else vocabulary_for(surveyed.n_bytes)
    limit = None if template.data.task == "language-model" else lengths(template)[0]
    sample = replace(surveyed.sample, vocab_size=vocab_size, max_tokens=limit)
    prepare(Job(config=sample, root=folder, folder=folder / "prepared"))
    corpus = open_corpus(folder / "prepared")
    facts = corpus.facts("train")
    scale = surveyed.n_bytes / surveyed.sample_bytes
    guessed = template.batches.p_mask if template.data.task == "masked-lm" else 1.0
    side = list(facts.tokens)[-1]
    # only the beginning of the longest text was kept
    whole = surveyed.longest / max(1, len(surveyed.longest_text.encode()))
    longest = int(whole * len(corpus.tokenizers[side].encode(surveyed.longest_text)))
    too_long = facts.skipped.get("too-long", 0)
    return MeasuredText(
        template=template,
        survey=surveyed,
        corpus=corpus,
        vocab_size=vocab_size or corpus.tokenizers[side].vocab_size,
        tokens=int(facts.tokens[side] * scale * guessed),
        read=int(max(facts.tokens.values()) * scale),
        longest=max(*facts.longest.values(), longest),
        too_long=too_long / (too_long + facts.documents),
    )


def _shape(text: MeasuredText, size: Size, batch_tokens: int) -> dict[str, Any]:
    """Return the settings of a candidate: data, batches and model."""
    template, data = text.template, text.template.data
    shape: dict[str, Any] = {
        "data.vocab_size": None if data.tokenizer == "file" else text.vocab_size,
        "model.d_model": size.d_model,
        "model.n_layers": size.n_layers,
        "model.n_heads": size.n_heads,
        "model.d_ff": size.d_ff,
    }
    if template.train.start_from is None:
        std = INITIAL_WEIGHTS[data.task] / math.sqrt(size.d_model)
        shape["model.init_std"] = round(std, 3)
    match data.task:
        case "pairs":
            return shape | _shape_of_pairs(text, batch_tokens)
        case "classification":
            return shape | _shape_of_labelled_texts(text, batch_tokens)
        case "masked-lm":
            return shape | _shape_of_masked_texts(text, batch_tokens)
        case "language-model":
            return shape | _shape_of_running_text(text, batch_tokens)


def _shape_of_pairs(text: MeasuredText, batch_tokens: int) -> dict[str, Any]:
    shape = _shape_of_documents(text, held_out_of_pairs(text.survey.documents))
    return shape | {"batches.batch_tokens": max(batch_tokens, shape["data.max_tokens"] + 1)}


def _shape_of_labelled_texts(text: MeasuredText, batch_tokens: int) -> dict[str, Any]:
    shape = _shape_of_documents(text, TELLS_3_POINTS / text.survey.documents)
    return shape | {"batches.batch_tokens": max(batch_tokens, shape["data.max_tokens"] + 1)}


def _shape_of_masked_texts(text: MeasuredText, batch_tokens: int) -> dict[str, Any]:
    # They are held out like labelled texts, so that the classifier's test texts are the same.
    shape = _shape_of_documents(text, TELLS_3_POINTS / text.survey.documents)
    length = shape["model.max_length"]
    _check_tokens(text, shape["data.held_out"], length)
    # Rows are as long as the model can read, so that it learns all positions.
    rows = {"batches.length": length, "batches.batch_size": max(1, batch_tokens // length)}
    return shape | rows


def _shape_of_running_text(text: MeasuredText, batch_tokens: int) -> dict[str, Any]:
    most, at_least = lengths(text.template)
    length = min(256 if text.tokens >= 100_000 else 64, most + 1)
    held_out = held_out_of_tokens(text.tokens)
    _check_tokens(text, held_out, length)
    shape = {
        "data.held_out": held_out,
        "batches.length": length,
        "batches.batch_size": batch_tokens // length,
        "model.max_length": max(length, at_least),
    }
    return shape | ({"data.hold_out": "groups"} if text.template.data.document == "line" else {})


def _shape_of_documents(text: MeasuredText, tested: float) -> dict[str, Any]:
    """Return the shape for texts that are read one by one. The share `tested` of them is kept for
    the test, if that is not too much."""
    most, at_least = lengths(text.template)
    longest = min(most, TOO_LONG, max(32, -(-text.longest * 5 // 4 // 32) * 32))
    n_documents = text.corpus.facts("train").documents
    if n_documents < PAIRS_AT_LEAST:
        limit = f"{most} tokens a side"
        if most < TOO_LONG:
            limit += ", the length of the model that training starts from"
        raise DataError(
            f"there are only {n_documents} {documents(text.template.data.task)} of at most "
            f"{limit}, but a model needs {PAIRS_AT_LEAST}, and many more to be good; give more text"
        )
    held_out = held_out_of_pairs(text.survey.documents)
    return {
        "data.held_out": held_out,
        "data.held_out_test": max(held_out, round(min(0.2, tested), 6)),
        "data.hold_out": "groups",
        "data.max_tokens": longest,
        "model.max_length": max(at_least, longest + 1),  # plus the mask of a classifier
    }


def _check_tokens(text: MeasuredText, held_out: float, length: int) -> None:
    """Raises if the text is too small: validation needs a row or two."""
    if text.read * held_out <= 2 * length:
        raise DataError(
            f"there are only about {text.read:,} tokens of text, but a language model needs "
            f"{2 * length / held_out:,.0f}; give more text"
        )


def lengths(template: Recipe) -> tuple[int, int]:
    """Return the highest number of tokens in a document, and the lowest number that the model must
    hold. Learned positions have a fixed number; all others are computed and can be extended."""
    assert template.model is not None
    if template.train.start_from is None:
        return TOO_LONG, 128 if template.data.task != "language-model" else 1
    longest = template.model.max_length
    fixed = template.model.positions == "learned"
    return min(TOO_LONG, longest - 1) if fixed else TOO_LONG, longest


def documents(task: Task) -> str:
    """Name the documents of which the text consists."""
    return "pairs" if task == "pairs" else "texts"


def _time(text: MeasuredText, shape: dict[str, Any], trials: Trials) -> tuple[float, float]:
    """Measure the seconds and targets of a step, from a few real steps on the sample."""
    recipe = with_values(
        text.template,
        {
            **shape,
            # with all the text there is
            "model.max_length": max(TOO_LONG + 1, shape["model.max_length"]),
            "train.validate_every": 0,
            "train.patience": None,
            "train.publish": "last",
            "train.metric": "loss",
            "train.start_from": None,
            "train.also_validate": (),
            "train.rehearse": None,
        },
    )
    plan = trials.plan(recipe, text.corpus)
    return plan.seconds_per_step, plan.targets_per_step
