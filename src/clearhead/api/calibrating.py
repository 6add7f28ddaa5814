"""Calibrates a model's scores on held-out text."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from clearhead.api.bleu_and_perplexity import pairs_to_translate
from clearhead.api.keywords import chosen, takes
from clearhead.api.loading import as_text_model
from clearhead.api.locating import SHIPPED
from clearhead.api.results import Evaluation
from clearhead.api.text_model import TextModel
from clearhead.api.texts import Calibrating, LinesGiven
from clearhead.config.evaluate import CalibrateOptions, Split
from clearhead.data.order import derive_key, permute
from clearhead.decoding.rating import mean_log_prob
from clearhead.decoding.text import translate_texts
from clearhead.errors import ConfigError, FolderError, InputError, function, setting
from clearhead.evaluation import calibrating
from clearhead.evaluation.calibrating import JudgedTranslation, MeasuredCalibration
from clearhead.evaluation.translation import check_scoring
from clearhead.interop.calibration import write_calibration
from clearhead.interop.model_folder import model_folder_of

_stages = logging.getLogger("clearhead.progress")


@takes(CalibrateOptions)
def calibrate(
    model: TextModel | str | Path,
    split: Split | None = None,
    *,
    source: LinesGiven | None = None,
    reference: LinesGiven | None = None,
    **options: Unpack[Calibrating],
) -> Evaluation:
    """Measure which quality to expect from a translation, given the score that the translator
    itself gives it, and write this curve into the model folder (`calibration.json`). From then on,
    each translation has a confidence: the chrF++ to expect, from 0 to 1.

    A run is calibrated on its validation text, or on another `split`. Otherwise, give the lines of
    `source` and `reference`, on which the model must not have been trained. The reported figures
    are measured on sentences to which the curve was not fitted.
    """
    settings, opened = chosen(CalibrateOptions, options), as_text_model(model)
    if not opened.opened.translates:
        raise InputError(
            "calibrate measures how good translations are, and this model does not translate; "
            f"measure it with {function('evaluate')}"
        )
    translator = opened.opened.translator
    if settings.save:
        _refuse_others_folder(opened)
    if split is not None and (source is not None or reference is not None):
        rule = "is a part of the run's own data"
        raise ConfigError("split", split, rule, "leave out either split or the files")
    check_scoring(None, lowercase=False)  # checked before translating, which takes long
    split = split or ("valid" if source is None and reference is None else None)
    sources, references, where = pairs_to_translate(opened, split, source, reference)
    n = min(settings.lines, len(sources))
    numbers = permute(np.arange(n), len(sources), derive_key("calibration", "lines")).tolist()
    _stages.info(f"translating {n:,} lines")
    engine = opened.engine(translator, settings.engine, settings.precision, settings.engine_folder)
    config = replace(settings.config(), too_long="skip")
    texts = [sources[number] for number in numbers]
    answers = translate_texts(engine, opened.opened.codec, texts, config)
    translated = [
        (answer.outputs[0], references[number])
        for number, answer in zip(numbers, answers)
        if answer.outputs and answer.outputs[0].tokens
    ]
    qualities = calibrating.sentence_qualities(
        [output.text for output, _ in translated], [reference for _, reference in translated]
    )
    measured = calibrating.calibrate(
        [
            JudgedTranslation(mean_log_prob(output, config.beam), len(output.tokens), quality)
            for (output, _), quality in zip(translated, qualities)
        ]
    )
    written = None
    if settings.save:
        # Only the file's name is kept: people pass model folders on, and paths are private.
        text = split or (Path(source).name if isinstance(source, str | Path) else "given lines")
        facts = measured.facts | {"text": text, "beam": settings.beam}
        written = write_calibration(model_folder_of(opened.folder), measured.calibration, facts)
        opened.__dict__.pop("calibration", None)
    return _evaluation(measured, where, written)


def _refuse_others_folder(model: TextModel) -> None:
    folder = model_folder_of(model.folder).absolute()
    if model.is_temporary or folder.is_relative_to(SHIPPED):
        raise FolderError(
            f"{folder.name} is temporary or part of the installed package, so it keeps no "
            "calibration; calibrate a copy (in Python: "
            f"clearhead.load({model.name!r}).save('copy')), or only measure: "
            f"{setting('save', False)}"
        )


def _evaluation(measured: MeasuredCalibration, where: str, written: Path | None) -> Evaluation:
    shares = measured.worst_found
    lines = [
        f"{where}: {measured.n:,} lines, in tenths by confidence",
        "confidence    chrF++, from 0 to 1",
        *(
            f"{point.confidence:10.3f}    {point.measured:.3f} ± {point.half_interval:.3f}"
            for point in measured.points
        ),
        f"calibration error {measured.error:.3f} (mean probability of a token: "
        f"{measured.error_before:.3f})",
        f"of the worst tenth by chrF++, {shares['confidence']:.0%} are in the lowest tenth by "
        f"confidence (in the longest tenth {shares['length']:.0%}, by chance "
        f"{shares['chance']:.0%})",
    ]
    if written is not None:
        lines.append(f"written: {written}")
    values = {
        "error": measured.error,
        "error_before": measured.error_before,
        **{f"worst_found_by_{name}": value for name, value in shares.items()},
    }
    facts: dict[str, Any] = measured.facts
    return Evaluation(values=values, records=[*facts.pop("points"), facts], lines=lines)
