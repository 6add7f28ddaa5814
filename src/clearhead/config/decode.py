"""The settings of decoding: where a text ends, how a token is chosen, how a beam is searched."""

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from clearhead.config.checks import (
    check_at_least,
    check_between,
    check_choices,
    check_whole,
    share_remedy,
)
from clearhead.errors import ConfigError

MAX_NEW = 2**20
"""The highest number of new tokens of one text. More would take weeks and must be a slip."""
MAX_WIDTH = 2**12
"""The highest number of hypotheses in a beam."""
MAX_BATCH = 2**16
"""The highest number of texts in a batch."""
Window = Literal["refuse", "stop", "slide"]
TooLong = Literal["refuse", "cut"]
TooLongSource = Literal["refuse", "cut", "skip"]
Start = Literal["auto", "none", "bos", "eos"]
"""The token before a text. "auto" is the one that texts began with in training, if the model folder
records one, and none otherwise."""
LengthPenalty = Literal["none", "average", "gnmt"]
EngineName = Literal["clearhead", "ctranslate2"]
EnginePrecision = Literal["float32", "int8"]


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """Settings that say where a text begins and where it ends."""

    max_new: int = 256
    """The highest number of tokens to generate, including the end token."""
    eos_id: int | None = 2
    """The token that ends a text; None: only `max_new` ends it."""
    start_id: int | None = 1
    """The token with which the decoder of an encoder-decoder starts. A decoder-only model starts
    from its prompt."""
    window: Window = "refuse"
    """What happens if prompt and text outgrow the model's `max_length`: "refuse" raises at once,
    "stop" ends the text there, "slide" drops the older half of the window and continues."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_between("max_new", self.max_new, 0, MAX_NEW)
        for name in ("eos_id", "start_id"):
            if getattr(self, name) is not None:
                check_at_least(name, getattr(self, name), 0)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """How the next token is drawn from its scores. The rules apply in the order of the fields
    below, each to the tokens that the previous rule has left."""

    repetition_penalty: float = 1.0
    """Penalty for tokens that are already in the prompt or the text: their scores are divided by
    this number if they are positive, and multiplied by it if they are negative (Keskar et al.
    2019); 1: no penalty."""
    temperature: float = 1.0
    """0 takes the likeliest token; values below 1 sharpen the distribution, values above 1 flatten
    it."""
    top_k: int | None = None
    """Draw only from the k likeliest tokens, and from tokens exactly as likely as the k-th; not
    given: draw from all."""
    top_p: float = 1.0
    """Draw only from the likeliest tokens that together reach this probability (Holtzman et al.
    2020)."""
    min_p: float = 0.0
    """Draw only from tokens that are at least this many times as likely as the likeliest (Nguyen et
    al. 2024)."""

    def __post_init__(self) -> None:
        check_choices(self)
        if not (self.temperature >= 0 and isfinite(self.temperature)):
            rule, remedy = "must be at least 0", "use 0 for the likeliest token"
            raise ConfigError("temperature", self.temperature, rule, remedy)
        top_k = 1 if self.top_k is None else self.top_k
        if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1:
            rule, remedy = "must be at least 1", "use None to allow every token"
            raise ConfigError("top_k", self.top_k, rule, remedy)
        if not 0 < self.top_p <= 1:
            rule = "must be above 0 and at most 1"
            remedy = share_remedy("top_p", self.top_p, "use 1 to allow every token")
            raise ConfigError("top_p", self.top_p, rule, remedy)
        if not 0 <= self.min_p <= 1:
            rule = "must be between 0 and 1"
            remedy = share_remedy("min_p", self.min_p, "use 0 to allow every token")
            raise ConfigError("min_p", self.min_p, rule, remedy)
        if not 0.001 <= self.repetition_penalty <= 1000:
            rule, remedy = "must be from 0.001 to 1000", "use 1 for no penalty"
            raise ConfigError("repetition_penalty", self.repetition_penalty, rule, remedy)


@dataclass(frozen=True, kw_only=True)
class BeamConfig:
    """A search over several texts at once."""

    width: int = 4
    """Number of unfinished texts that are kept after each step."""
    n_best: int = 1
    """Number of finished texts that are returned, the best first."""
    length_penalty: LengthPenalty = "average"
    """What a text's log-probability is divided by: nothing ("none"), length^alpha ("average"), or
    ((5 + length) / 6)^alpha ("gnmt", Wu et al. 2016). The end counts as a token."""
    alpha: float = 1.0
    """Exponent of the length penalty. 0 means no penalty; larger values give longer texts."""
    patience: float | None = 1.0
    """The search ends when patience · width texts have ended (Kasai et al. 2022), or sooner if no
    unfinished text can still reach the n best. None: it ends only when no unfinished text can."""
    groups: int = 1
    """Number of groups of equal width. The groups search one after another, and each avoids the
    tokens that earlier groups have just chosen (Vijayakumar et al. 2018)."""
    diversity: float = 0.0
    """Penalty in nats for a token that hypotheses of earlier groups have just chosen, once for each
    such hypothesis; above 0 if there are groups. The penalty decides which hypotheses are kept; the
    reported scores do not include it."""

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("width", "n_best", "groups"):
            check_between(name, getattr(self, name), 1, MAX_WIDTH)
        if self.n_best > self.width:
            rule, remedy = f"must be at most width={self.width}", f"try width={self.n_best}"
            raise ConfigError("n_best", self.n_best, rule, remedy)
        if self.width % self.groups:
            rule = f"must divide width={self.width}"
            raise ConfigError("groups", self.groups, rule, f"try width={2 * self.groups}")
        if self.groups > 1 and self.diversity == 0:
            rule = f"lets all groups={self.groups} find the same texts"
            raise ConfigError("diversity", self.diversity, rule, "try diversity=0.5")
        if not 0 <= self.alpha <= 10:
            raise ConfigError("alpha", self.alpha, "must be from 0 to 10", "use 0 for no penalty")
        if not (self.diversity >= 0 and isfinite(self.diversity)):
            raise ConfigError("diversity", self.diversity, "must be at least 0", "use 0 for none")
        if self.patience is not None and not self.patience > 0:
            rule, remedy = "must be above 0", "use None to search until nothing can improve"
            raise ConfigError("patience", self.patience, rule, remedy)

    def normaliser(self, length: int) -> float:
        """Return the number by which the log-probability of a text of this length is divided. It
        never falls as the length grows."""
        match self.length_penalty:
            case "none":
                return 1.0
            case "average":
                return max(1, length) ** self.alpha
            case "gnmt":
                return ((5 + length) / 6) ** self.alpha


@dataclass(frozen=True, kw_only=True)
class TranslateConfig:
    """How texts are translated."""

    beam: BeamConfig = BeamConfig()
    """The search; width 1 is greedy."""
    max_new: int = 256
    """The highest number of tokens to generate for each text."""
    too_long: TooLongSource = "skip"
    """What happens to a text beyond the model's length: "skip" leaves its translation empty and
    warns, "cut" cuts its end and warns, "refuse" raises."""
    batch: int = 32
    """Number of texts that are processed together."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_between("max_new", self.max_new, 0, MAX_NEW)
        check_between("batch", self.batch, 1, MAX_BATCH)


@dataclass(frozen=True, kw_only=True)
class GenerateConfig:
    """How texts are continued."""

    choice: Choice = Choice()
    """How each token is chosen."""
    max_new: int = 128
    """The highest number of tokens to generate for each text."""
    seed: int = 0
    """The same seed gives the same texts."""
    only: tuple[str, ...] = ()
    """Generate one of these texts; empty: any text."""
    start: Start = "auto"
    """The token before each text; auto: what the model folder records, as in training."""
    window: Window = "stop"
    """When the model's length is reached: refuse at once, stop there, or slide, which drops the
    older half and continues."""
    too_long: TooLong = "refuse"
    """A prompt beyond the model's length is refused, or its front is cut with a warning."""
    batch: int = 32
    """Number of texts that are processed together."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_whole("seed", self.seed)
        check_between("max_new", self.max_new, 0, MAX_NEW)
        check_between("batch", self.batch, 1, MAX_BATCH)
