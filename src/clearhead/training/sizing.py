"""A first recipe for somebody's own text: sizes that suit the text, the machine and the time, each
with its reason. The speed is measured here; `python -m benchmarks.own_text` measures how good the
rules are.

The number of updates matters most: a batch is no larger than this machine needs to be fast, and a
larger model is taken only if it still gets enough updates. So more time never means fewer updates
of a larger batch, which was found to end in a worse model."""

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from clearhead.config import Recipe, with_values
from clearhead.data.corpus import Corpus, open_corpus
from clearhead.data.prepare import prepare
from clearhead.data.shards import Job
from clearhead.errors import DataError
from clearhead.intake.survey import Survey, survey
from clearhead.training.sizes import SIZES, Size
from clearhead.training.trials import Trials

# Bytes of text, and the tokens of a vocabulary that each of them is seen often enough in.
VOCABULARIES = ((300_000, 1000), (3_000_000, 4000), (100_000_000, 8000), (float("inf"), 16_000))
# A model that sees its text less often is too large for the time.
PASSES_WANTED = {"pairs": 8, "language-model": 5, "classification": 5}
# After that, more would teach little: small models learn by heart.
PASSES_ENOUGH = {"pairs": 100, "language-model": 15, "classification": 6}
STEPS_AT_LEAST = 300  # fewer updates teach nothing, however small the text
UPDATES_WANTED = 800  # a larger model is worth its time only with as many
UPDATES_KEPT = 2000  # a larger batch is, if it leaves as many
BATCH_TOKENS = 1024  # of the smallest batch; a smaller one leaves a processor core idle
BATCH_TOKENS_AT_MOST = 16_384
FASTER = 1.3  # times as many tokens a second: what a batch of twice the size must give
PAIRS_AT_LEAST = 10  # of which a tenth, one, is held out
DROPOUTS = ((20, 0.3), (8, 0.2), (0, 0.1))  # passes, and what they need
DROPOUT_OF_LABELS = 0.3
# Of the initial weights, their standard deviation times √d_model; see docs/en/recipes.md.
INITIAL_WEIGHTS = {"pairs": 1.0, "language-model": 0.5, "classification": 1.0}
FOR_STEPS = 0.9  # the part of the time that is not validation and checkpoints
TOO_LONG = 512  # tokens of a side of a pair
VALIDATIONS = 10
WATCHED = 50  # sentences that a validation translates, all at once, if that takes no more than
WATCHING = 0.05  # of the time
CALLS = 0.005  # seconds of a step of decoding, however small the model


@dataclass(frozen=True, kw_only=True)
class Sized:
    """The chosen values, each with its reason."""

    values: dict[str, Any]
    """By the recipe's dotted keys."""
    reasons: list[str]


@dataclass(frozen=True, kw_only=True)
class _Text:
    """What is known of the text once a sample of it has been prepared."""

    survey: Survey
    corpus: Corpus
    vocab_size: int
    tokens: int
    """To be guessed in one pass: of the target, if there is one; of a classifier, the labels."""
    read: int
    """Of the larger side."""
    longest: int
    """Tokens of the longest side of a document."""
    too_long: float
    """Share of the sample's documents that have more than `_lengths` allows."""


class _Candidate(NamedTuple):
    """A model and its batches, and what a step of them takes."""

    size: Size
    shape: dict[str, Any]
    seconds: float
    targets: float

    def updates(self, minutes: float) -> int:
        return int(FOR_STEPS * 60 * minutes / self.seconds)

    @property
    def speed(self) -> float:
        return self.targets / self.seconds


def size_recipe(
    template: Recipe,
    minutes: float,
    clock: Callable[[], float] = time.perf_counter,
    threads: int | None = None,
) -> Sized:
    """Values for the template's keys. Its paths are those of the text, absolute. `clock` is what
    minutes are counted by: `time.process_time` counts those of the processor."""
    trials = Trials(threads, clock)
    with tempfile.TemporaryDirectory(prefix="clearhead-") as folder:
        text = _measure(template, Path(folder))
        table = SIZES if template.train.start_from is None else (_own_size(template),)
        fits = next(number for number, size in enumerate(table) if text.read <= size.tokens)
        number, passes = fits, PASSES_WANTED[template.data.task]
        while True:
            chosen = _candidate(template, text, table[number], BATCH_TOKENS, trials)
            possible = chosen.updates(minutes)
            enough_passes = possible * chosen.targets >= passes * text.tokens
            if number == 0 or (possible >= UPDATES_WANTED and enough_passes):
                break
            number -= 1
        chosen = _with_larger_batches(template, text, chosen, minutes, trials)
    sized = _described(template, text, chosen, minutes, table[fits])
    return replace(sized, reasons=[*sized.reasons, *trials.reasons])


def _own_size(template: Recipe) -> Size:
    """Of the model that training starts from."""
    model = template.model
    assert model is not None
    shape = (model.d_model, model.n_layers, model.n_heads, model.d_ff)
    return Size(float("inf"), *shape, template.train.lr)


def _candidate(
    template: Recipe, text: _Text, size: Size, batch_tokens: int, trials: Trials
) -> _Candidate:
    shape = _shape(template, text, size, batch_tokens)
    return _Candidate(size, shape, *_time(template, shape, text.corpus, trials))


def _with_larger_batches(
    template: Recipe, text: _Text, chosen: _Candidate, minutes: float, trials: Trials
) -> _Candidate:
    """Doubled as long as that makes the machine faster, and leaves enough updates. With as many
    tokens in all, more updates teach more: where it is not faster, a batch stays small."""
    batch_tokens = BATCH_TOKENS
    while batch_tokens < BATCH_TOKENS_AT_MOST and chosen.updates(minutes) >= UPDATES_KEPT:
        batch_tokens *= 2
        larger = _candidate(template, text, chosen.size, batch_tokens, trials)
        if larger.updates(minutes) < UPDATES_KEPT or larger.speed < FASTER * chosen.speed:
            break
        chosen = larger
    return chosen


def _described(
    template: Recipe, text: _Text, chosen: _Candidate, minutes: float, fits: Size
) -> Sized:
    size, shape, seconds, targets = chosen
    possible = chosen.updates(minutes)
    enough = max(STEPS_AT_LEAST, int(PASSES_ENOUGH[template.data.task] * text.tokens / targets))
    steps = max(1, min(possible, enough))
    passes = steps * targets / text.tokens
    dropout = next(share for least, share in DROPOUTS if passes >= least)
    why = f"the model sees the text {passes:.1f} times"
    if template.data.task == "classification":
        dropout, why = DROPOUT_OF_LABELS, "one label for a whole text is soon known by heart"
    often = max(1, steps // VALIDATIONS)
    rhythm = {
        "model.p_dropout": dropout,
        "train.steps": steps,
        "train.lr": size.lr,
        "train.warmup_steps": min(1000, often),
        "train.validate_every": often,
        "train.save_every": often,
        "train.log_every": max(1, min(50, often)),
    }
    if template.data.task == "pairs" and _can_watch(shape["data.max_tokens"], seconds, minutes):
        rhythm["train.translate_valid"] = WATCHED
    took = steps * seconds / FOR_STEPS / 60
    limit = "; more would teach little, and the time allows more."
    if possible < STEPS_AT_LEAST:
        needed = math.ceil(STEPS_AT_LEAST * seconds / FOR_STEPS / 60)
        limit = f". That is too few to learn from: give minutes={needed}."
    elif possible <= enough:
        limit = ", as often as the time allows."
    learner = "the model that training starts from" if template.train.start_from else "this width"
    warmup = rhythm["train.warmup_steps"]
    reasons = [
        *_about_the_text(template, text, shape),
        _about_the_model(template, size, fits, minutes),
        *_about_initial_weights(shape),
        f"Steps: one takes {seconds:.3f} s here (measured) and has {targets:,.0f} tokens to guess. "
        f"{steps:,} of them take about {_spoken(took)} and see the text {passes:.1f} times{limit}",
        f"Dropout: {dropout}, since {why}.",
        f"Learning rate: {size.lr:g} at most, which suits {learner}, after a warm-up of "
        f"{warmup:,} {'step' if warmup == 1 else 'steps'}, and down to nearly nothing.",
    ]
    return Sized(values={**shape, **rhythm}, reasons=reasons)


def _about_the_model(template: Recipe, size: Size, fits: Size, minutes: float) -> str:
    """`fits`: the size that the text alone would ask for."""
    if template.train.start_from is not None:
        why = f"that of {template.train.start_from}, which training starts from"
    elif size is not fits:
        passes = PASSES_WANTED[template.data.task]
        why = (
            f"smaller than the text deserves: in {_spoken(minutes)} a larger one would get fewer "
            f"than {UPDATES_WANTED:,} updates, or see the text fewer than {passes} times"
        )
    else:
        why = f"which suits up to {size.tokens:,.0f} tokens"
    return f"Model: d_model = {size.d_model}, {size.n_layers} layers, {why}."


def _can_watch(longest: int, seconds: float, minutes: float) -> bool:
    """Whether validations may translate: a model that has hardly begun writes as much as it may."""
    a_token_of_each = CALLS + seconds * WATCHED / BATCH_TOKENS
    time_for_it = WATCHING * 60 * minutes
    there = find_spec("sacrebleu") is not None
    return there and VALIDATIONS * longest * a_token_of_each <= time_for_it


def _measure(template: Recipe, folder: Path) -> _Text:
    found = survey(template.data, folder)
    given = template.data.tokenizer == "file"
    vocab_size = None if given else _row(VOCABULARIES, found.n_bytes)
    limit = None if template.data.task == "language-model" else _lengths(template)[0]
    sample = replace(found.sample, vocab_size=vocab_size, max_tokens=limit)
    prepare(Job(config=sample, root=folder, folder=folder / "prepared"))
    corpus = open_corpus(folder / "prepared")
    facts = corpus.facts("train")
    scale = found.n_bytes / found.sample_bytes
    side = list(facts.tokens)[-1]
    whole = found.longest / max(1, len(found.longest_text.encode()))  # only its head was kept
    longest = int(whole * len(corpus.tokenizers[side].encode(found.longest_text)))
    too_long = facts.skipped.get("too-long", 0)
    return _Text(
        survey=found,
        corpus=corpus,
        vocab_size=vocab_size or corpus.tokenizers[side].vocab_size,
        tokens=int(facts.tokens[side] * scale),
        read=int(max(facts.tokens.values()) * scale),
        longest=max(*facts.longest.values(), longest),
        too_long=too_long / (too_long + facts.documents),
    )


def _shape(template: Recipe, text: _Text, size: Size, batch_tokens: int) -> dict[str, Any]:
    """What a candidate is made of: data, batches and model."""
    shape: dict[str, Any] = {
        "data.vocab_size": None if template.data.tokenizer == "file" else text.vocab_size,
        "model.d_model": size.d_model,
        "model.n_layers": size.n_layers,
        "model.n_heads": size.n_heads,
        "model.d_ff": size.d_ff,
    }
    if template.train.start_from is None:
        std = INITIAL_WEIGHTS[template.data.task] / math.sqrt(size.d_model)
        shape["model.init_std"] = round(std, 3)
    if template.data.task != "language-model":
        longest = min(TOO_LONG, max(32, -(-text.longest * 5 // 4 // 32) * 32))
        most, at_least = _lengths(template)
        longest = min(longest, most)
        held_out = _held_out(text.survey.documents)
        pairs = text.corpus.facts("train").documents
        if pairs < PAIRS_AT_LEAST:
            limit = f"{most} tokens a side"
            if most < TOO_LONG:
                limit += ", the length of the model that training starts from"
            raise DataError(
                f"there are only {pairs} {_documents(template)} of at most {limit}, and a model "
                f"needs {PAIRS_AT_LEAST}, and many more to be good; give more"
            )
        return shape | {
            "data.held_out": held_out,
            "data.held_out_test": held_out,
            "data.hold_out": "groups",
            "data.max_tokens": longest,
            "batches.batch_tokens": max(batch_tokens, longest + 1),  # and a classifier's mask
            "model.max_length": max(at_least, longest + 1),
        }
    length = min(256 if text.tokens >= 100_000 else 64, _lengths(template)[0] + 1)
    held_out = _held_out_tokens(text.tokens)
    if text.tokens * held_out <= 2 * length:
        raise DataError(
            f"there are only about {text.tokens:,} tokens of text, and a language model needs "
            f"{2 * length / held_out:,.0f}; give more text"
        )
    if template.data.document == "line":
        shape["data.hold_out"] = "groups"
    return shape | {
        "data.held_out": held_out,
        "batches.length": length,
        "batches.batch_size": batch_tokens // length,
        "model.max_length": max(length, _lengths(template)[1]),
    }


def _lengths(template: Recipe) -> tuple[int, int]:
    """The most tokens of a document, and the least that the model must hold. Learned positions have
    a fixed number; all others are computed, and can be extended."""
    assert template.model is not None
    if template.train.start_from is None:
        return TOO_LONG, 128 if template.data.task != "language-model" else 1
    longest = template.model.max_length
    fixed = template.model.positions == "learned"
    return min(TOO_LONG, longest - 1) if fixed else TOO_LONG, longest


def _held_out(pairs: int) -> float:
    """A fiftieth, but two thousand pairs at most, and of few pairs more."""
    if pairs < 1000:
        return 0.1
    return 0.02 if pairs < 100_000 else round(2000 / pairs, 6)


def _held_out_tokens(tokens: int) -> float:
    """A tenth, of a million or more a fiftieth, but a hundred thousand tokens at most: each
    validation reads them all, and what it takes of the time is lost to training."""
    if tokens < 1_000_000:
        return 0.1
    return 0.02 if tokens < 5_000_000 else round(100_000 / tokens, 6)


def _time(
    template: Recipe, shape: dict[str, Any], corpus: Corpus, trials: Trials
) -> tuple[float, float]:
    """Seconds and targets of a step, from a few real ones on the sample."""
    recipe = with_values(
        template,
        {
            **shape,
            "model.max_length": max(TOO_LONG + 1, shape["model.max_length"]),  # whatever there is
            "train.validate_every": 0,
            "train.patience": None,
            "train.publish": "last",
            "train.metric": "loss",
            "train.start_from": None,
            "train.also_validate": (),
        },
    )
    plan = trials.plan(recipe, corpus)
    return plan.seconds_per_step, plan.targets_per_step


def _about_the_text(template: Recipe, text: _Text, shape: dict[str, Any]) -> list[str]:
    found, what = text.survey, _documents(template)
    held_out = shape["data.held_out"]
    if "data.hold_out" in shape:
        parts = "Validation and test" if "data.held_out_test" in shape else "Validation"
        each = " each" if "data.held_out_test" in shape else ""
        validation = f"{parts}: {100 * held_out:.3g}%{each}, drawn at random by groups of equal "
        validation += "sentences."
    else:
        validation = f"Validation: the last {100 * held_out:.3g}% of each file."
    reasons = [
        f"Text: {found.documents:,} {what}, {found.n_bytes:,} bytes, about {text.tokens:,} tokens "
        f"to guess (counted in a sample of {found.sample_bytes:,} bytes).{found.left_out}",
        f"Vocabulary: {text.vocab_size:,} tokens, "
        + (
            "those of the model that training starts from."
            if template.train.start_from
            else "so that each is seen often enough in that much text."
        ),
        validation,
    ]
    if template.data.task != "language-model":
        limit = shape["data.max_tokens"]
        rest = ""
        if text.longest > limit:
            known = text.too_long > 0 and limit == _lengths(template)[0]
            share = f": about {100 * text.too_long:.2g}% of the {what}" if known else ""
            rest = f" Longer ones are skipped and counted{share}."
        reasons.append(
            f"Length: the longest line has about {text.longest:,} tokens, and {limit} are "
            f"allowed.{rest}"
        )
    else:
        reasons.append(f"Length: samples of {shape['batches.length']} tokens, cut from the text.")
    return reasons


def _about_initial_weights(shape: dict[str, Any]) -> list[str]:
    if (std := shape.get("model.init_std", 0.02)) <= 0.02:
        return []
    return [
        f"Initial weights: of standard deviation {std:g}; with the usual 0.02 so narrow a model "
        "learns late."
    ]


def _documents(template: Recipe) -> str:
    return "pairs" if template.data.task == "pairs" else "texts"


def _row(table: Sequence[tuple[float, int]], size: float) -> int:
    return next(value for limit, value in table if size <= limit)


def _spoken(minutes: float) -> str:
    return f"{minutes:.0f} minutes" if minutes >= 2 else f"{max(1, 60 * minutes):.0f} seconds"
