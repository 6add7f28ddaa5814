"""Measures how good a model, or the output of any system, is. The kind of the model decides what is
measured; settings for another kind are refused, because they would otherwise be ignored."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from clearhead.api.accuracy_and_masked_loss import measure_encoder
from clearhead.api.bleu_and_perplexity import (
    measure_language_model,
    measure_output,
    measure_translator,
)
from clearhead.api.keywords import chosen, takes
from clearhead.api.results import Evaluation
from clearhead.api.texts import LinesGiven, Measuring
from clearhead.api.tokenized_model import TokenizedModel, as_tokenized_model
from clearhead.config.evaluate import (
    EncoderEvaluation,
    LanguageModelEvaluation,
    ScoringOptions,
    Split,
    TranslatorEvaluation,
)
from clearhead.config.usual_names import remedy_for_option
from clearhead.errors import ClearheadError, ConfigError, InputError, setting
from clearhead.models import Classifier, MaskedLM


class _Kind(NamedTuple):
    name: str
    texts: tuple[str, ...]
    """The names of the settings that give the text to measure on."""
    options: type
    others: tuple[str, ...] = ()


TRANSLATOR = _Kind("a translator", ("source", "reference"), TranslatorEvaluation, ("against",))
LANGUAGE_MODEL = _Kind("a language model", ("text",), LanguageModelEvaluation)
ENCODER = _Kind("an encoder", ("prepared",), EncoderEvaluation)
OUTPUT = _Kind("the output of a system", ("reference",), ScoringOptions, ("hypothesis", "against"))
KINDS = (TRANSLATOR, LANGUAGE_MODEL, ENCODER)
OPTIONS = {field.name for kind in KINDS for field in fields(kind.options)}
NAMES = OPTIONS | {name for kind in (*KINDS, OUTPUT) for name in (*kind.texts, *kind.others)}


@takes(TranslatorEvaluation, LanguageModelEvaluation, EncoderEvaluation)
def evaluate(
    model: TokenizedModel | str | Path | None = None,
    split: Split | None = None,
    *,
    source: LinesGiven | None = None,
    reference: LinesGiven | None = None,
    hypothesis: LinesGiven | None = None,
    against: TokenizedModel | LinesGiven | None = None,
    text: LinesGiven | None = None,
    prepared: str | Path | None = None,
    **options: Unpack[Measuring],
) -> Evaluation:
    """Measure how good a model is; a run is measured on its own test set (or the `split`) unless
    you give text.

    A translator: BLEU and chrF++ (the extra `eval`) of translations of `source` against
    `reference`, with 95% intervals, and whether it differs from the model `against`; with `exact`,
    the share of lines that are correct to the last character. Without a model, the `hypothesis`,
    which is the output of any system, is scored in the same way, and `against` is another output.
    A language model: perplexity of `text`. An encoder: accuracy of a classifier, or loss on masked
    tokens, on the data in `prepared`. An option that does not apply to the model is an error.
    """
    settings: dict[str, Any] = {
        "source": source,
        "reference": reference,
        "hypothesis": hypothesis,
        "against": against,
        "text": text,
        "prepared": prepared,
        **options,
    }
    if hypothesis is not None:
        for name, value in {"model": model, "split": split}.items():
            if value is not None:
                raise InputError(
                    f"{setting(name)} does not apply with {setting('hypothesis')}; leave it out"
                )
        scoring, texts = _options_and_texts(OUTPUT, settings)
        return measure_output(scoring, **texts)
    if model is None:
        raise InputError(
            f"{setting('model')} is missing; give a model folder, a run, or "
            f"{setting('hypothesis', ...)}"
        )
    return measure(as_tokenized_model(model), split, settings)


def measure(model: TokenizedModel, split: str | None, settings: Mapping[str, Any]) -> Evaluation:
    """Measure what suits the kind of the model. The method `evaluate` of a model calls this
    function too."""
    if split not in (None, "train", "valid", "test"):
        raise ConfigError(
            "split", split, "is not a valid choice", "give 'train', 'valid' or 'test'"
        )
    if model.opened.translates:
        options, texts = _options_and_texts(TRANSLATOR, settings)
        _check_split(model, split, texts)
        return measure_translator(model, options, split, **texts)
    if isinstance(model.model, MaskedLM | Classifier):
        options, texts = _options_and_texts(ENCODER, settings)
        return measure_encoder(model, options, split, **texts)
    options, texts = _options_and_texts(LANGUAGE_MODEL, settings)
    _check_split(model, split, texts)
    return measure_language_model(model, options, split, **texts)


def _options_and_texts(kind: _Kind, settings: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the options of this kind, checked, and the texts to measure on. Raises if a setting is
    for another kind."""
    for name in settings:
        if name not in NAMES:
            remedy = remedy_for_option(name, [*NAMES])
            raise TypeError(f"evaluate has no option {name!r}; {remedy}")
    options: dict[str, Any] = {}
    texts: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in OPTIONS and value is None:  # a text that was not given
            continue
        if name in (*kind.texts, *kind.others):
            texts[name] = value
        elif name in {field.name for field in fields(kind.options)}:
            options[name] = value
        else:
            raise _does_not_apply(name, value, kind)
    return chosen(kind.options, options), texts


def _does_not_apply(name: str, value: object, kind: _Kind) -> ClearheadError:
    if kind is not OUTPUT and any(name in other.texts for other in KINDS):
        instead = " and ".join(map(setting, kind.texts))
        return InputError(f"{setting(name)} does not apply to {kind.name}; give {instead} instead")
    if name not in OPTIONS:  # many lines, perhaps
        return InputError(f"{setting(name)} does not apply to {kind.name}; leave it out")
    return ConfigError(name, value, f"does not apply to {kind.name}", "leave it out")


def _check_split(model: TokenizedModel, split: str | None, texts: Mapping[str, Any]) -> None:
    if split is not None and {"text", "source", "reference"} & texts.keys():
        rule = "is a part of the run's own data"
        raise ConfigError("split", split, rule, "leave out either split or the files")
    if split is not None and not model.is_run:
        rule = "is a part of a run's own data, and this model is not a run"
        kind = TRANSLATOR if model.opened.translates else LANGUAGE_MODEL
        texts_needed = " and ".join(setting(name, ...) for name in kind.texts)
        raise ConfigError("split", split, rule, f"give the run, or {texts_needed}")
