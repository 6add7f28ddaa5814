"""Draws the tokens on which two models are compared: random tokens, and edge cases in which ports
often fail."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.interop.certificate import longest_probe
from clearhead.models import CausalLM, Classifier, MaskedLM, Model, Seq2Seq
from clearhead.parts import masks


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One batch for clearhead and for other software, in the form that each needs."""

    name: str
    n_tokens: int
    """The number of tokens of the vocabulary that the logits score."""
    tokens: Tensor
    real: Tensor
    source: Tensor | None = None
    source_real: Tensor | None = None
    segments: Tensor | None = None

    @torch.no_grad()
    def ours(self, model: Model) -> Tensor:
        """Return the logits of the clearhead model."""
        match model:
            case Seq2Seq():
                assert self.source is not None
                return model(
                    self.source, self.tokens, source_real=self.source_real, target_real=self.real
                )
            case CausalLM():
                return model(self.tokens, real=self.real)
            case MaskedLM() | Classifier():
                return model(self.tokens, real=self.real, segments=self.segments)

    def theirs(self, config: ModelConfig) -> dict[str, Tensor]:
        """Return the probe's tensors by the names that transformers and ONNX graphs use."""
        tokens, mask = self.tokens, self.real.long()
        match config.family:
            case "encoder-decoder":
                assert self.source is not None and self.source_real is not None
                return {
                    "input_ids": self.source,
                    "attention_mask": self.source_real.long(),
                    "decoder_input_ids": tokens,
                    "decoder_attention_mask": mask,
                }
            case "decoder":
                # Without these, padding on the left would move every position.
                positions = masks.count_positions(self.real)
                return {"input_ids": tokens, "attention_mask": mask, "position_ids": positions}
            case "encoder":
                segments = {} if self.segments is None else {"token_type_ids": self.segments}
                return {"input_ids": tokens, "attention_mask": mask, **segments}


def probes(config: ModelConfig) -> Iterator[Probe]:
    """Return the probes, which are the same for the same configuration."""
    draw = torch.Generator().manual_seed(0)
    longest = longest_probe(config)
    usual = min(longest, 16)
    ragged = [usual, max(1, usual // 2), 1]
    yield _probe(config, draw, "random", [usual] * 3)
    yield _probe(config, draw, "padded", ragged)
    if config.family == "decoder":
        yield _probe(config, draw, "padded on the left", ragged, left=True)
    yield _probe(config, draw, "length 1", [1, 1])
    yield _probe(config, draw, f"length {longest:,}", [longest])


def batch_of_five(config: ModelConfig) -> Probe:
    """Return a batch of five rows of different lengths, one of them empty, for formats whose files
    have an axis for the batch."""
    lengths = [min(length, longest_probe(config)) for length in (5, 4, 3, 2, 0)]
    draw = torch.Generator().manual_seed(1)
    return _probe(config, draw, "a batch of 5 with an empty row", lengths)


def _probe(
    config: ModelConfig,
    draw: torch.Generator,
    name: str,
    lengths: list[int],
    *,
    left: bool = False,
) -> Probe:
    n_tokens = config.output_vocab_size
    tokens, real = _rows(n_tokens, config.pad_id, lengths, draw, left=left)
    source = source_real = segments = None
    if config.family == "encoder-decoder":
        others = lengths[::-1]
        source, source_real = _rows(config.vocab_size, config.pad_id, others, draw)
    if config.n_segments:
        segments = torch.randint(config.n_segments, tokens.shape, generator=draw)
    return Probe(
        name=name,
        n_tokens=n_tokens,
        tokens=tokens,
        real=real,
        source=source,
        source_real=source_real,
        segments=segments,
    )


def _rows(
    vocab_size: int,
    pad_id: int | None,
    lengths: list[int],
    draw: torch.Generator,
    *,
    left: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return a row of random tokens per length, and a mask of the real ones. No token is the
    padding."""
    index = torch.arange(max(lengths)).expand(len(lengths), -1)
    real = index < torch.tensor(lengths)[:, None]
    real = real.flip(1) if left else real
    filler = 0 if pad_id is None else pad_id
    tokens = torch.randint(max(1, vocab_size - 1), real.shape, generator=draw)
    tokens = (tokens + (tokens >= filler)).clamp(max=vocab_size - 1)
    return tokens.masked_fill(~real, filler), real
