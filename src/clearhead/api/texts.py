"""Checks texts as callers give them, one or several, and declares the options of text functions."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, TypedDict

from clearhead.api.tokenized_model import TokenizedModel
from clearhead.config.checks import as_path
from clearhead.config.decode import (
    EngineName,
    EnginePrecision,
    LengthPenalty,
    Start,
    TooLong,
    TooLongSource,
    Window,
)
from clearhead.errors import InputError, setting, type_of
from clearhead.intake.formats import BYTE_ORDER_MARK
from clearhead.intake.recognise import HEAD, check_encoding, not_utf_8
from clearhead.intake.unpack import open_bytes, read_all

_log = logging.getLogger("clearhead")
Texts = str | Iterable[str]
LinesGiven = str | Path | Iterable[str]
"""The path of a file (.gz too), or lines in memory."""


class Engines(TypedDict, total=False):
    """The fields of `EngineOptions`, for type checkers. The following classes do the same for other
    options; a test compares them all with those options."""

    engine: EngineName
    precision: EnginePrecision
    engine_folder: str | Path | None


class HowToSearch(Engines, total=False):
    """The fields of `SearchOptions`."""

    beam: int
    length_penalty: LengthPenalty
    alpha: float
    max_new: int
    batch: int


class Translating(HowToSearch, total=False):
    """The fields of `TranslateOptions`."""

    too_long: TooLongSource
    split: str | None
    glossary: Mapping[str, str] | str | Path | None


class NBest(Translating, total=False):
    """The fields of `NBestOptions`."""

    n_best: int


class Filling(Translating, total=False):
    """The fields of `CatalogueOptions`."""

    memory: Sequence[str | Path]
    pieces: bool
    leave_below: float


class Calibrating(HowToSearch, total=False):
    """The fields of `CalibrateOptions`."""

    lines: int
    save: bool


class Sampling(TypedDict, total=False):
    """The fields of `SamplingOptions`."""

    max_new: int
    temperature: float
    top_k: int | None
    top_p: float
    min_p: float
    repetition_penalty: float
    seed: int
    only: Iterable[str] | None
    start: Start
    window: Window
    too_long: TooLong


class Generating(Sampling, Engines, total=False):
    """The fields of `GenerateOptions`."""

    batch: int


class Scoring(TypedDict, total=False):
    """The fields of `ScoreOptions`."""

    start: Start


class Labelling(TypedDict, total=False):
    """The fields of `ClassifyOptions`."""

    too_long: TooLongSource
    batch: int


class Measuring(HowToSearch, total=False):
    """The fields of `TranslatorEvaluation`, `LanguageModelEvaluation` and `EncoderEvaluation`."""

    exact: bool
    tokenize: str | None
    lowercase: bool
    resamples: int
    document: Literal["line", "file"]
    stride: int | None
    start: Start
    p_mask: float


class Evaluating(Measuring, total=False):
    """The options of an evaluation, and the text to measure on."""

    source: LinesGiven | None
    reference: LinesGiven | None
    against: TokenizedModel | LinesGiven | None
    text: LinesGiven | None
    prepared: str | Path | None


def one_string(text: object) -> str:
    """Return the text. Raises if it is not a single string."""
    if isinstance(text, str):
        return text
    raise InputError(f"text={text!r:.60} is {type_of(text)}; give one string")


def as_list(value: Texts) -> list[str]:
    """Return one text or many as a list of strings."""
    if isinstance(value, str):
        return [value]
    _refuse_frames(value)
    if isinstance(value, bytes | Path | dict | set) or not isinstance(value, Iterable):
        raise InputError(
            f"{value!r:.60} is {type_of(value)}; give a string, or a list of strings "
            "(the text of a file: Path(…).read_text())"
        )
    texts = list(value)
    if not texts:
        _warn_of_used_up(value)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"text {index + 1} is {text!r:.60}, {type_of(text)}; give strings")
    return texts


def _refuse_frames(value: object) -> None:
    """Raises for a data frame, which would yield the names of its columns."""
    if hasattr(value, "itertuples") or hasattr(value, "iter_rows"):
        raise InputError("this is a data frame; give one of its columns, such as frame['text']")


def _warn_of_used_up(value: object) -> None:
    """Warn of a generator without texts: an earlier call may have read them."""
    if isinstance(value, Iterator):
        _log.warning(
            "the generator gave no texts; if an earlier call has read them, give a list, which can "
            "be read again"
        )


def given_lines(name: str, lines_given: LinesGiven | None, what: str) -> list[str]:
    """Return the lines of a file, or lines in memory. If they are missing, the message says `what`
    to give."""
    if lines_given is None:
        raise InputError(f"{setting(name)} is missing; give {what}")
    if not isinstance(lines_given, str | Path):
        _refuse_frames(lines_given)
        if isinstance(lines_given, bytes | dict | set) or not isinstance(lines_given, Iterable):
            raise InputError(
                f"{name}={lines_given!r:.60} must be a path or a list of lines; give one of them"
            )
        lines = list(lines_given)
        if not lines:
            _warn_of_used_up(lines_given)
        for number, line in enumerate(lines, 1):
            if not isinstance(line, str):
                raise InputError(f"{name}: line {number} is {line!r:.60}; give strings")
        return lines
    path = as_path(name, lines_given)
    if isinstance(lines_given, str) and " " in lines_given and not path.exists():
        raise InputError(
            f"{name}={lines_given!r:.60} is one string, which names a file, but there is no such "
            f"file; give texts as a list: {name}=[…]"
        )
    with ExitStack() as stack:
        whole = read_all(open_bytes(path, stack))
    check_encoding(path, whole[:HEAD])
    try:
        text = whole.removeprefix(BYTE_ORDER_MARK).decode("utf-8")
    except UnicodeDecodeError as error:
        line, byte = whole.count(b"\n", 0, error.start) + 1, whole[error.start]
        around = whole[max(0, error.start - 1000) : error.start + 5000]
        raise not_utf_8(path, around, f"line {line}: byte 0x{byte:02x}") from None
    lines = text.split("\n")
    return [line.rstrip("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]
