"""The options of a server, and the limits of what it accepts."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, get_args

from clearhead.config.checks import check_at_least
from clearhead.config.decode import BeamConfig, EnginePrecision, TranslateConfig
from clearhead.config.options import SearchOptions
from clearhead.errors import ConfigError, nearest

LogLevel = Literal["debug", "info", "warning", "error"]
BYTES_OF_A_CHARACTER = 12
"""The highest number of bytes that one character takes in JSON: two escapes of a surrogate pair."""

CAN_BE_ZERO = ("batch_ms", "batch_seconds", "max_alternatives", "short_tokens")


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """How models are served."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8080
    """Port to listen on; 0: a free one."""
    workers: int = 1
    """Number of processes. Each uses one core and holds all models."""
    log_level: LogLevel = "info"
    """The lowest level of messages that are logged."""
    precision: EnginePrecision = "float32"
    """The precision of a translator's weights."""
    engine_folder: str | Path | None = None
    """Where the models for ctranslate2 are stored; not given: the cache directory."""
    beam: int = SearchOptions.beam
    """Width of the beam search of translators; 1 is greedy."""
    max_new: int = SearchOptions.max_new
    """The highest number of tokens to generate for each sentence."""
    api_keys: str | Path | None = None
    """A file with one key per line; not given: the keys in the variable CLEARHEAD_API_KEYS,
    separated by commas; without either, no key is needed."""

    def __post_init__(self) -> None:
        check_at_least("workers", self.workers, 1)
        check_at_least("beam", self.beam, 1)
        check_at_least("max_new", self.max_new, 1)
        TranslateConfig(beam=BeamConfig(width=self.beam), max_new=self.max_new)
        levels = get_args(LogLevel)
        if self.log_level not in levels:
            remedy = nearest(str(self.log_level), levels)
            raise ConfigError("log_level", self.log_level, "is not a valid choice", remedy)


@dataclass(frozen=True, kw_only=True)
class RequestLimits:
    """The limits that the owner of a server can set. The server refuses what exceeds them."""

    max_characters: int = 20_000
    """The highest number of characters in all texts of a request."""
    max_texts: int = 256
    """The highest number of texts in a request."""
    max_waiting: int = 100_000
    """The highest number of tokens that may wait for each model; a request that would exceed it is
    refused with status 503."""
    seconds: float = 60.0
    """The longest time that the answer to a request may take."""
    max_connections: int = 1_000
    """The highest number of open connections of a worker. A further connection replaces the one
    that has waited for its client the longest; if all connections are working, the new one is
    refused with status 503."""
    max_per_address: int = 500
    """The highest number of open connections from one address. A proxy counts as one address."""
    client_seconds: float = 15.0
    """The longest time that a client may take to send a whole request, to read the answer, or to
    ask again on a connection that is kept open. Nothing that the client sends extends this time."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            smallest = 0 if field.name in CAN_BE_ZERO else 1
            if isinstance(value, bool) or not value >= smallest:
                rule = f"must be at least {smallest}"
                raise ConfigError(field.name, value, rule, f"try {field.default}")


@dataclass(frozen=True, kw_only=True)
class Limits(RequestLimits):
    """All limits of a server. Each worker process has its own queue."""

    max_alternatives: int = 4
    """The highest number of further translations of each text."""
    max_new: int = 1024
    """The highest number of new tokens of a completion, over all its choices."""
    max_running: int = 4
    """The highest number of completions of a model that run at the same time."""
    stop_seconds: float = 60.0
    """Time after SIGTERM to finish the requests that were accepted."""
    batch_tokens: int = 512
    """The highest number of source tokens in one batch. A text that arrives while a batch runs
    waits for the end of that batch if both are short or both are long."""
    batch_seconds: float = 2.0
    """How long each batch of a long text should take. The first batches are shorter, until their
    speed has been measured."""
    short_tokens: int = 128
    """The highest number of source tokens in a short text. A text of one sentence is always
    short."""
    batch_ms: float = 4.0
    """How long, in milliseconds, a batch waits until it has as many sentences as the batch before
    it."""

    @property
    def max_body(self) -> int:
        """The highest number of bytes in a body: enough for every text that `max_characters`
        allows."""
        return BYTES_OF_A_CHARACTER * self.max_characters + 65_536
