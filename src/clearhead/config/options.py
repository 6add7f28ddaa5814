"""The options of decoding. Each default, its explanation and its check are here and nowhere else:
Python functions, commands and the commands' help derive from these classes.

An option whose default is a field of another class (`top_k = Choice.top_k`) has that field's
explanation too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clearhead.config.checks import (
    check_at_least,
    check_between,
    check_choices,
    check_whole,
    share_remedy,
)
from clearhead.config.decode import (
    MAX_BATCH,
    MAX_WIDTH,
    BeamConfig,
    Choice,
    EngineName,
    EnginePrecision,
    GenerateConfig,
    LengthPenalty,
    Start,
    TooLong,
    TooLongSource,
    TranslateConfig,
    Window,
)
from clearhead.errors import ConfigError, InputError, type_of

PageLanguage = Literal["en", "zh"]


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What runs the model."""

    engine: EngineName = "clearhead"
    """Software that runs the model: clearhead itself, or ctranslate2, which is faster and needs the
    extra `serve`."""
    precision: EnginePrecision = "float32"
    """The precision of the weights in ctranslate2."""
    engine_folder: str | Path | None = None
    """Where the models for ctranslate2 are stored; not given: the cache directory."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions(EngineOptions):
    """How the best translation is searched for."""

    beam: int = BeamConfig.width
    """Number of hypotheses that are searched side by side; 1 is greedy."""
    length_penalty: LengthPenalty = BeamConfig.length_penalty
    alpha: float = BeamConfig.alpha
    max_new: int = TranslateConfig.max_new
    batch: int = TranslateConfig.batch

    def __post_init__(self) -> None:
        check_choices(self)
        check_between("beam", self.beam, 1, MAX_WIDTH)
        self.config()  # which checks the rest

    def config(self) -> TranslateConfig:
        """The settings of the decoder."""
        beam = BeamConfig(width=self.beam, length_penalty=self.length_penalty, alpha=self.alpha)
        return TranslateConfig(beam=beam, max_new=self.max_new, batch=self.batch)


@dataclass(frozen=True, kw_only=True)
class TranslateOptions(SearchOptions):
    """How texts are translated."""

    too_long: TooLongSource = TranslateConfig.too_long
    split: str | None = None
    """Split each text into sentences and translate them one by one. Give the two languages, such as
    en-zh; needs the extra `serve`."""
    glossary: Mapping[str, str] | str | Path | None = None
    """Terms with the translations that the model must use: a CSV file of two columns, or in Python
    also a dictionary; not given: none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.glossary, Mapping | str | Path | None):
            rule = f"is {type_of(self.glossary)}"
            remedy = "give a CSV file, or {term: translation, …}"
            raise ConfigError("glossary", self.glossary, rule, remedy)

    def config(self, n_best: int = BeamConfig.n_best) -> TranslateConfig:
        """Return the settings of the decoder. The beam is at least as wide as the number of
        translations that are wanted."""
        beam = BeamConfig(
            width=max(self.beam, n_best),
            n_best=n_best,
            length_penalty=self.length_penalty,
            alpha=self.alpha,
        )
        return TranslateConfig(
            beam=beam, max_new=self.max_new, too_long=self.too_long, batch=self.batch
        )


@dataclass(frozen=True, kw_only=True)
class NBestOptions(TranslateOptions):
    """How texts are translated in several ways."""

    n_best: int = BeamConfig.n_best
    """Number of translations of each text, the best first."""

    def __post_init__(self) -> None:
        check_between("n_best", self.n_best, 1, MAX_WIDTH)
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class CatalogueOptions(TranslateOptions):
    """How a catalogue is filled."""

    memory: Sequence[str | Path] = ()
    """Other catalogues or TMX files. If one of them translates exactly the same text, its
    translation is used instead of the model's."""
    pieces: bool = False
    """Translate the text between placeholders and tags piece by piece, for a model that has not
    learnt to keep them."""
    leave_below: float = 0.0
    """Leave an entry open if the confidence of its translation is below this, such as 0.4; needs a
    calibrated model; 0: fill all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.leave_below <= 1:
            rule = "must be from 0 to 1"
            remedy = share_remedy("leave_below", self.leave_below, "use 0 to fill every entry")
            raise ConfigError("leave_below", self.leave_below, rule, remedy)
        if isinstance(self.memory, str | Path):
            remedy = f"give a list: [{str(self.memory)!r}]"
            raise ConfigError("memory", self.memory, "is one path", remedy)
        if self.split is not None:
            rule = "is for texts: the entries of a catalogue are translated as they are"
            raise ConfigError("split", self.split, rule, "leave it out")


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How a text is continued."""

    max_new: int = GenerateConfig.max_new
    temperature: float = Choice.temperature
    top_k: int | None = Choice.top_k
    top_p: float = Choice.top_p
    min_p: float = Choice.min_p
    repetition_penalty: float = Choice.repetition_penalty
    seed: int = 0
    """Seed of the sampling. Each text depends only on this seed and on its own number, not on the
    other texts."""
    only: Iterable[str] | None = None
    """Generate one of these texts; not given: any."""
    start: Start = GenerateConfig.start
    window: Window = GenerateConfig.window
    too_long: TooLong = GenerateConfig.too_long

    def __post_init__(self) -> None:
        object.__setattr__(self, "only", _strings("only", self.only))
        check_choices(self)
        self.config()  # which checks the rest

    def config(self) -> GenerateConfig:
        """The settings of the decoder."""
        choice = Choice(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
        )
        return GenerateConfig(
            choice=choice,
            max_new=self.max_new,
            seed=self.seed,
            only=() if self.only is None else tuple(self.only),
            start=self.start,
            window=self.window,
            too_long=self.too_long,
            batch=self.n_side_by_side,
        )

    @property
    def n_side_by_side(self) -> int:
        """The number of texts that are generated together. A stream has one text."""
        return 1


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(SamplingOptions, EngineOptions):
    """How texts are continued."""

    batch: int = GenerateConfig.batch

    @property
    def n_side_by_side(self) -> int:
        """The number of texts in a batch."""
        return self.batch


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """How given texts are scored."""

    start: Start = "auto"
    """The token before each text of a language model, without which the first token is not scored;
    auto: as in training."""

    def __post_init__(self) -> None:
        check_choices(self)


@dataclass(frozen=True, kw_only=True)
class ClassifyOptions:
    """How texts are labelled."""

    too_long: TooLongSource = "skip"
    """What happens to a text beyond the model's length: "skip" gives it no label and warns, "cut"
    cuts its end and warns, "refuse" raises."""
    batch: int = TranslateConfig.batch

    def __post_init__(self) -> None:
        check_choices(self)
        check_between("batch", self.batch, 1, MAX_BATCH)


@dataclass(frozen=True, kw_only=True)
class SeeOptions:
    """How the text on the page of `clearhead see` is generated."""

    target: str | None = None
    """Show the model this translation instead of its own; for a decoder, which only continues the
    text, this continuation."""
    beam: int | None = None
    """Width of the beam search; not given: 4 for an encoder-decoder, 1, which is greedy, for a
    decoder."""
    max_new: int | None = None
    """The highest number of tokens to generate; not given: 64 for an encoder-decoder, 32 for a
    decoder."""
    temperature: float = 0.0
    """Above 0: sample the tokens of a decoder."""
    seed: int = 0
    """Seed of the sampling."""
    language: PageLanguage = "en"
    """Language of the page."""
    training_text: bool = False
    """For a run: show how many training lines contain each word of the text, and the nearest
    training pairs. The page then contains training text: publish it only if you are allowed to."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_whole("seed", self.seed)
        for name in ("beam", "max_new"):
            if getattr(self, name) is not None:
                check_at_least(name, getattr(self, name), 1)


def _strings(name: str, value: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return one text or many as strings. A generator becomes a list, because the texts are read
    twice."""
    if value is None or isinstance(value, str):
        return value if value is None else (value,)
    if isinstance(value, bytes | Path | dict | set) or not isinstance(value, Iterable):
        rule = f"is {type_of(value)}"
        raise ConfigError(name, value, rule, "give a string, or a list of strings")
    texts = tuple(value)
    if not texts:
        raise ConfigError(name, value, "is empty", "name the texts, or leave it out")
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise InputError(f"{name}: text {number} is {text!r:.60}; give strings")
    return texts
