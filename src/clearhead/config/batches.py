"""The settings that decide which tokens step n reads from the prepared token files."""

from dataclasses import dataclass
from typing import Literal

from clearhead.config.checks import check_at_least, check_choices
from clearhead.errors import ConfigError

Layout = Literal["stream", "documents", "joined"]


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """How samples are drawn and put together. A global batch is shared by all ranks."""

    seed: int = 1
    """Decides the order of the samples."""
    layout: Layout = "stream"
    """Language models: "stream" cuts samples from one long row of tokens, "documents" packs whole
    documents into rows. Pairs: "joined" puts source and target into one row, for a decoder."""
    length: int = 256
    """Number of tokens in a row (language models)."""
    batch_size: int = 64
    """Number of rows in a global batch (language models)."""
    batch_tokens: int = 4096
    """Number of positions in a global batch, padding included (classification and pairs). For
    pairs, the number applies to each side, or to the joined rows."""
    window: int = 32_768
    """Number of samples that are sorted by length together (pairs, classification, packed
    documents). A larger window means less padding but more memory. The memory does not depend on
    the size of the corpus."""
    p_mask: float = 0.15
    """Share of tokens that a masked language model has to predict."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_at_least("seed", self.seed, 0)
        for name in ("length", "batch_size", "batch_tokens", "window"):
            check_at_least(name, getattr(self, name), 1)
        if not 0 < self.p_mask < 1:
            raise ConfigError("p_mask", self.p_mask, "must be above 0 and below 1", "try 0.15")
