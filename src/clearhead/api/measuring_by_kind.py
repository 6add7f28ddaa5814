"""Decides which measurement is for a model, and which settings are for the measurement. It refuses
any other setting, which would otherwise be ignored."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from clearhead.api.encoder_measures import measure_encoder
from clearhead.api.keywords import chosen
from clearhead.api.measures import (
    Evaluation,
    measure_language_model,
    measure_output,
    measure_translator,
)
from clearhead.api.tokenized_model import TokenizedModel
from clearhead.config.evaluate import (
    EncoderEvaluation,
    LanguageModelEvaluation,
    ScoringOptions,
    TranslatorEvaluation,
)
from clearhead.errors import ClearheadError, ConfigError, InputError, nearest, setting
from clearhead.models import Classifier, MaskedLM


class _Kind(NamedTuple):
    name: str
    texts: tuple[str, ...]
    """What it is measured on."""
    options: type
    others: tuple[str, ...] = ()


TRANSLATOR = _Kind("a translator", ("source", "reference"), TranslatorEvaluation, ("against",))
LANGUAGE_MODEL = _Kind("a language model", ("text",), LanguageModelEvaluation)
ENCODER = _Kind("an encoder", ("prepared",), EncoderEvaluation)
OUTPUT = _Kind("the output of a system", ("reference",), ScoringOptions, ("hypothesis", "against"))
KINDS = (TRANSLATOR, LANGUAGE_MODEL, ENCODER)
OPTIONS = {field.name for kind in KINDS for field in fields(kind.options)}
NAMES = OPTIONS | {name for kind in (*KINDS, OUTPUT) for name in (*kind.texts, *kind.others)}


def measure(model: TokenizedModel, split: str | None, settings: Mapping[str, Any]) -> Evaluation:
    """Measures the model with the function for its kind."""
    named = _named(settings)
    if split not in (None, "train", "valid", "test"):
        raise ConfigError("split", split, "is not a choice", "give 'train', 'valid' or 'test'")
    if model.opened.translates:
        options, texts = _options_and_texts(TRANSLATOR, named)
        _refuse_both(split, texts)
        return measure_translator(model, options, split, **texts)
    if isinstance(model.model, MaskedLM | Classifier):
        options, texts = _options_and_texts(ENCODER, named)
        return measure_encoder(model, options, split, **texts)
    options, texts = _options_and_texts(LANGUAGE_MODEL, named)
    _refuse_both(split, texts)
    return measure_language_model(model, options, split, **texts)


def measure_hypothesis(settings: Mapping[str, Any]) -> Evaluation:
    """The same for the output of a system, without a model."""
    options, texts = _options_and_texts(OUTPUT, _named(settings))
    return measure_output(options, **texts)


def _named(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Every option that was named, and every text that is there."""
    for name in settings:
        if name not in NAMES:
            raise TypeError(f"evaluate has no option {name!r}; {nearest(name, NAMES)}")
    return {name: value for name, value in settings.items() if name in OPTIONS or value is not None}


def _options_and_texts(kind: _Kind, settings: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The options of this kind, checked, and the texts that it is measured on; raises if a setting
    is for another kind."""
    options = {field.name for field in fields(kind.options)}
    texts = {*kind.texts, *kind.others}
    for name, value in settings.items():
        if name not in options | texts:
            raise _does_not_apply(name, value, kind)
    checked = chosen(kind.options, {name: settings[name] for name in settings if name in options})
    return checked, {name: settings[name] for name in settings if name in texts}


def _does_not_apply(name: str, value: object, kind: _Kind) -> ClearheadError:
    if kind is not OUTPUT and any(name in other.texts for other in KINDS):
        instead = " and ".join(map(setting, kind.texts))
        return InputError(f"{setting(name)} does not apply to {kind.name}; give {instead} instead")
    if name not in OPTIONS:  # many lines, perhaps
        return InputError(f"{setting(name)} does not apply to {kind.name}; leave it out")
    return ConfigError(name, value, f"does not apply to {kind.name}", "leave it out")


def _refuse_both(split: str | None, texts: Mapping[str, Any]) -> None:
    if split is not None and {"text", "source", "reference"} & texts.keys():
        rule = "is a part of the run's own data"
        raise ConfigError("split", split, rule, "leave out either split or the files")
