"""Explains to the user, in sentences, why `clearhead new` chose these sizes."""

import math
from typing import Any

from clearhead.errors import Message, setting
from clearhead.training.sizes import (
    FOR_STEPS,
    MUON_PASSES,
    PASSES_WANTED,
    STEPS_AT_LEAST,
    UPDATES_WANTED,
)
from clearhead.training.sizing import MeasuredText, Sized, documents, lengths


def reasons_for(sized: Sized) -> list[str]:
    """Return a sentence or two for each choice."""
    text, values = sized.text, sized.values
    template = text.template
    _, shape, seconds, targets = sized.chosen
    steps, possible = values["train.steps"], sized.chosen.updates(sized.minutes)
    why = f"the model sees the text {sized.passes:.1f} times"
    guessed = "tokens to guess"
    if template.data.task == "classification":
        guessed = "texts to label"
        why = "one label for a whole text is soon known by heart"
    if template.data.task == "masked-lm":
        why = "each pass hides other tokens"
    limit = "; more would teach little, and the time allows more."
    if possible < STEPS_AT_LEAST:
        needed = math.ceil(UPDATES_WANTED * seconds / FOR_STEPS / 60)
        limit = (
            f". That is too few to learn from: give {setting('minutes', needed)}, for about "
            f"{UPDATES_WANTED} steps, or more."
        )
    elif possible <= sized.enough:
        limit = ", as often as the time allows."
    took = steps * seconds / FOR_STEPS / 60
    learner = "this width" if shape["train.optimizer"] == "adamw" else "this optimizer"
    if template.train.start_from:
        learner = "the model that training starts from"
    warmup = values["train.warmup_steps"]
    return [
        *_about_the_text(text, shape),
        _about_the_model(sized),
        *_about_initial_weights(shape),
        Message(
            f"Steps: one takes {seconds:.3f} s here (measured) and has {targets:,.0f} {guessed}. "
            f"{steps:,} of them take about {_spoken(took)} and see the text {sized.passes:.1f} "
            f"times{limit}"
        ),
        f"Dropout: {values['model.p_dropout']}, since {why}.",
        *_about_the_optimizer(shape),
        f"Learning rate: {shape['train.lr']:g} at most, which suits {learner}, after a warm-up of "
        f"{warmup:,} {'step' if warmup == 1 else 'steps'}, and down to nearly nothing.",
        *sized.about_threads,
    ]


def _about_the_model(sized: Sized) -> str:
    template, size = sized.text.template, sized.chosen.size
    if template.train.start_from is not None:
        why = f"that of {template.train.start_from}, which training starts from"
    elif size is not sized.fits:
        passes = PASSES_WANTED[template.data.task]
        why = (
            f"smaller than the text deserves: in {_spoken(sized.minutes)} a larger one would get "
            f"fewer than {UPDATES_WANTED:,} updates, or see the text fewer than {passes} times"
        )
    else:
        why = f"which suits up to {size.tokens:,.0f} tokens"
    return f"Model: d_model = {size.d_model}, {size.n_layers} layers, {why}."


def _about_the_text(text: MeasuredText, shape: dict[str, Any]) -> list[str]:
    survey, template = text.survey, text.template
    what = documents(template.data.task)
    held_out = shape["data.held_out"]
    if "data.hold_out" in shape:
        tested = shape.get("data.held_out_test")
        test = "" if tested is None else f" and test: {100 * tested:.3g}%"
        validation = f"Validation: {100 * held_out:.3g}%{test}, drawn at random by groups of equal "
        validation += "sentences."
    else:
        validation = f"Validation: the last {100 * held_out:.3g}% of each file."
    tokens = f"{text.tokens:,} tokens to guess"
    if template.data.task in ("classification", "masked-lm"):
        tokens = f"{text.read:,} tokens"
    reasons = [
        f"Text: {survey.documents:,} {what}, {survey.n_bytes:,} bytes, about {tokens} (counted in "
        f"a sample of {survey.sample_bytes:,} bytes).{survey.left_out}",
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
            share_is_known = text.too_long > 0 and limit == lengths(template)[0]
            share = f": about {100 * text.too_long:.2g}% of the {what}" if share_is_known else ""
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
        f"Initial weights: standard deviation {std:g}; with the usual 0.02, a model this narrow "
        "learns late."
    ]


def _about_the_optimizer(shape: dict[str, Any]) -> list[str]:
    if shape["train.optimizer"] != "muon":
        return []
    return [
        "Optimizer: muon, which learns most from a text that is seen fewer than "
        f"{MUON_PASSES} times."
    ]


def _spoken(minutes: float) -> str:
    return f"{minutes:.0f} minutes" if minutes >= 2 else f"{max(1, 60 * minutes):.0f} s"
