"""The options of preparing data, training, planning, exporting, and making a recipe: see
`config/options.py`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clearhead.config.checks import (
    check_at_least,
    check_between,
    check_choices,
    check_number,
    check_whole,
    share_remedy,
)
from clearhead.errors import ConfigError, setting


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """How text becomes token files."""

    folder: str | Path | None = None
    """Folder of the prepared data; not given: prepared/RECIPE."""
    processes: int | None = None
    """Number of processes that encode; not given: one per core."""
    overwrite: bool = False
    """Replace existing prepared data."""

    def __post_init__(self) -> None:
        check_choices(self)
        if self.processes is not None:
            check_at_least("processes", self.processes, 1)


def _check_threads(threads: int | None) -> None:
    if type(threads) is int and threads < 1:
        rule = "must be a whole number of at least 1"
        raise ConfigError("threads", threads, rule, "leave it out to have the number chosen")
    if threads is not None:
        check_between("threads", threads, 1, 4096)


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of a training run."""

    folder: str | Path | None = None
    """Folder of the run; not given: runs/RECIPE."""
    prepared: str | Path | None = None
    """Folder of the prepared data; not given: prepared/RECIPE."""
    threads: int | None = None
    """Number of processor threads to compute with; not given: a new run times a few steps with one,
    with half and with all of them, and keeps the fastest number, even when it resumes."""

    def __post_init__(self) -> None:
        _check_threads(self.threads)


Software = Literal["huggingface", "ctranslate2", "onnx", "web"]
StoredPrecision = Literal["fp32", "fp16", "int8"]


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """How a model is exported."""

    check: bool = True
    """Compare the results of the exported model with the original's. This needs memory for the
    model in fp64."""
    precision: StoredPrecision = "fp32"
    """The precision of the weights in onnx files. The files compute in fp32 whatever the
    precision."""
    runtime: str | Path | None = None
    """For web: the node_modules folder with the packages that run the model in the browser; not
    given: the one in the current folder."""
    example: str | None = None
    """For web: the text that the page shows first; not given: the first line of the model's
    examples.txt."""
    single_file: bool = False
    """For web: write the page with the model inside it, as one index.html that a browser opens from
    the disk."""

    def __post_init__(self) -> None:
        check_choices(self)


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The options of planning a run on many accelerators."""

    gpus: int = 8
    """Number of accelerators."""
    kind: str = "H100"
    """Kind of accelerator."""
    tokens: float | None = None
    """Number of tokens of the whole training, such as 15e12; a recipe has its own number."""
    length: int | None = None
    """Number of tokens in a sequence; not given: the recipe's or the model's."""
    batch_tokens: float | None = None
    """Number of tokens in a step; not given: the recipe's, or what GPT-3's table suggests for the
    size of the model."""
    utilisation: float | str | None = None
    """Share of the accelerator's peak that the run reaches, such as 0.4, or the name of a published
    run; not given: a typical share for the accelerator."""

    def __post_init__(self) -> None:
        check_whole("gpus", self.gpus)
        if not isinstance(self.kind, str):
            raise ConfigError("kind", self.kind, "is not a string", "give a name, such as 'H100'")
        if self.length is not None:
            check_whole("length", self.length)
        for name in ("tokens", "batch_tokens", "utilisation"):
            value = getattr(self, name)
            if value is not None and not (name == "utilisation" and isinstance(value, str)):
                check_number(name, value)
        if isinstance(self.utilisation, int | float):
            check_utilisation(self.utilisation)
        if self.batch_tokens is not None and self.batch_tokens < 1:
            raise ConfigError("batch_tokens", self.batch_tokens, "must be at least 1", "try 8192")


def check_utilisation(share: float) -> None:
    """Raises unless this is a share of the peak; 40 was probably meant as 40%."""
    if not 0 < share <= 1:
        remedy = share_remedy("utilisation", share, f"try {setting('utilisation', 0.4)}")
        raise ConfigError("utilisation", share, "must be above 0 and at most 1", remedy)


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """Values that a plan must assume. Replace those that you know better."""

    price: float | None = None
    """Dollars for an hour of one accelerator; not given: the price in the table."""
    gpu_hours_per_failure: float = 50_640.0
    """Accelerator-hours between two failures that stop the run. Llama 3 405B: 419 unexpected
    interruptions in 54 days on 16,384 H100."""
    restart_minutes: float = 10.0
    """Minutes from a failure until the next step. In this time, someone notices the failure,
    replaces the machine, starts the run again, and the run loads its checkpoint."""
    save_gb_per_second: float = 1.0
    """Gigabytes per second that one node writes to shared storage while all nodes write. Llama 3's
    storage took 2 TB/s from 2,048 nodes."""
    text_bytes_per_token: float = 4.0
    """Bytes of text in a token. The default is for English; Chinese has about 3 with a Chinese
    vocabulary."""
    tokens_per_core_second: float = 225_000.0
    """Tokens per second that one processor core tokenises (`python -m benchmarks.data`: 210,209 and
    239,121)."""
    cores: int = 64
    """Number of processor cores that tokenise, with datatrove."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not 0 < value < math.inf:
                default = type(self).__dataclass_fields__[name].default
                raise ConfigError(name, value, "must be above 0 and finite", f"try {default}")


@dataclass(frozen=True, kw_only=True)
class NewOptions:
    """The options of making a recipe for your own text."""

    start: str | Path | None = None
    """Start from the tokenizer, shape and weights of a run, a model folder or a shipped model."""
    rehearse_texts: int = 2000
    """If the training text of the starting model is missing (pairs only), rehearse that model's own
    translations of up to this many new sources. Translating takes at most about a tenth of the
    minutes. 0: rehearse none."""
    masked: bool = False
    """Make a masked language model from the texts, without their labels. A classifier of the same
    texts can then start from the run of that model."""
    minutes: float = 30.0
    """How many minutes to train."""
    skip: Sequence[str] | None = None
    """Skip and count invalid lines or rows of these kinds; blank lines are always skipped."""
    clean: Sequence[str] | None = None
    """When the text is prepared, remove documents with defects of these kinds (none named: of all
    kinds), and list each of them."""
    out: str | Path | None = None
    """The .toml file to write, in which every key is explained; its name becomes the name of the
    recipe."""
    folder: str | Path | None = None
    """Folder into which text in memory is written; not given: text/NAME."""
    threads: int | None = None
    """Number of processor threads with which steps are timed; not given: the fastest of one, half
    and all."""

    def __post_init__(self) -> None:
        _check_threads(self.threads)
        check_at_least("rehearse_texts", self.rehearse_texts, 0)
        check_number("minutes", self.minutes)
        if not self.minutes > 0:
            raise ConfigError("minutes", self.minutes, "must be above 0 and finite", "try 30")
