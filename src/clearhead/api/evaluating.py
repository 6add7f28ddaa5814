"""Measures how good a model is, or the output of any system."""

from pathlib import Path
from typing import Any, Unpack

from clearhead.api.keywords import takes
from clearhead.api.loading import as_text_model
from clearhead.api.measures import Evaluation
from clearhead.api.measuring_by_kind import measure, measure_hypothesis
from clearhead.api.text_model import TextModel
from clearhead.api.texts import LinesGiven, Measuring
from clearhead.config.evaluate import (
    EncoderEvaluation,
    LanguageModelEvaluation,
    Split,
    TranslatorEvaluation,
)
from clearhead.errors import InputError, setting


@takes(TranslatorEvaluation, LanguageModelEvaluation, EncoderEvaluation)
def evaluate(
    model: TextModel | str | Path | None = None,
    split: Split | None = None,
    *,
    source: LinesGiven | None = None,
    reference: LinesGiven | None = None,
    hypothesis: LinesGiven | None = None,
    against: TextModel | LinesGiven | None = None,
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
        return measure_hypothesis(settings)
    if model is None:
        raise InputError(
            f"{setting('model')} is missing; give a model folder, a run, or "
            f"{setting('hypothesis', ...)}"
        )
    return measure(as_text_model(model), split, settings)
