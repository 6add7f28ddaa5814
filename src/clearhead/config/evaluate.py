"""Options of measuring a model: see `config/options.py`."""

from dataclasses import dataclass
from typing import Literal

from clearhead.config.checks import check_at_least, check_choices
from clearhead.config.decode import GenerateConfig, Start
from clearhead.config.options import SearchOptions
from clearhead.errors import ConfigError, setting

Split = Literal["train", "valid", "test"]


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """How translations are compared with references."""

    exact: bool = False
    """Only count the lines that equal the reference exactly. This needs no sacrebleu."""
    tokenize: str | None = None
    """Tokenizer of BLEU, by sacrebleu's name: 13a, zh, ja-mecab, ko-mecab, char; not given: chosen
    by the script of the references."""
    lowercase: bool = False
    """Ignore case."""
    resamples: int = 1000
    """Number of bootstrap resamples for the 95% interval; 0: no interval."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_at_least("resamples", self.resamples, 0)
        for name in ("tokenize", "resamples"):
            if self.exact and getattr(self, name) != getattr(ScoringOptions, name):
                rule = f"is for BLEU and chrF++, but {setting('exact', True)} counts lines"
                raise ConfigError(name, getattr(self, name), rule, "leave one out")


@dataclass(frozen=True, kw_only=True)
class TranslatorEvaluation(ScoringOptions, SearchOptions):
    """How a translator is measured."""

    def __post_init__(self) -> None:
        SearchOptions.__post_init__(self)
        ScoringOptions.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions(SearchOptions):
    """How a translator is calibrated."""

    lines: int = 1000
    """The highest number of lines to translate. They are chosen at random (seeded)."""
    save: bool = True
    """Write the curve into the model folder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least("lines", self.lines, 1)


@dataclass(frozen=True, kw_only=True)
class LanguageModelEvaluation:
    """How a language model is measured."""

    document: Literal["line", "file"] = "line"
    """What counts as one text: each line, or the whole file."""
    stride: int | None = None
    """Number of tokens by which the window moves; not given: half of its length."""
    start: Start = GenerateConfig.start

    def __post_init__(self) -> None:
        check_choices(self)
        if self.stride is not None:
            check_at_least("stride", self.stride, 1)


@dataclass(frozen=True, kw_only=True)
class EncoderEvaluation:
    """How an encoder is measured."""

    p_mask: float = 0.15
    """Share of the tokens that are masked."""

    def __post_init__(self) -> None:
        check_choices(self)
