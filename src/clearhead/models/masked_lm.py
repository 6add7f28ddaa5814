"""The encoder-only models (BERT), which fill in masked tokens from both sides, or label a whole
text."""

import torch
from torch import nn

from clearhead.config import ModelConfig
from clearhead.errors import InputError
from clearhead.models.inputs import RealGiven, resolve_real, sequence_positions
from clearhead.models.own_parts import OwnParts
from clearhead.parts.embeddings import InputEmbedding, OutputProjection, TokenEmbedding
from clearhead.parts.positions import check_length
from clearhead.parts.recorder import Recorder
from clearhead.shapes import Float, Int, Logits, Stream, Tensor, Tokens
from clearhead.stacks.encoder import Encoder


class EncoderModel(nn.Module):
    """The base of both models: the encoder stack, its embeddings, and a head after the stack."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        tokens: TokenEmbedding,
        embedding: InputEmbedding,
        encoder: Encoder,
        head: nn.Module,
    ) -> None:
        super().__init__()
        self.config = config
        self.own_parts = OwnParts()
        self.tokens = tokens
        self.embedding = embedding
        self.encoder = encoder
        self.head = head

    def encode(
        self,
        tokens: Tokens,
        *,
        segments: Int[Tensor, "batch length"] | None = None,
        real: RealGiven = None,
        recorder: Recorder | None = None,
    ) -> Stream:
        """Return a vector per token that depends on the whole sequence."""
        mask = resolve_real(tokens, real, self.config)
        check_length(tokens.shape[1], self.config.max_length)
        if segments is not None and not self.config.n_segments:
            raise InputError("this model has no segments; leave them out, or set n_segments")
        positions = sequence_positions(tokens, mask)
        x = self.embedding(self.tokens(tokens), positions, mask, segments)
        return self.encoder(x, positions, mask, recorder)


class MaskedLM(EncoderModel):
    """A masked language model. After the stack, its head and the output projection give a score per
    token of the vocabulary."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        tokens: TokenEmbedding,
        embedding: InputEmbedding,
        encoder: Encoder,
        head: nn.Module,
        output: OutputProjection,
    ) -> None:
        super().__init__(config, tokens=tokens, embedding=embedding, encoder=encoder, head=head)
        self.output = output

    def forward(
        self,
        tokens: Tokens,
        *,
        segments: Int[Tensor, "batch length"] | None = None,
        real: RealGiven = None,
        recorder: Recorder | None = None,
    ) -> Logits:
        """Return the logits of the token that belongs at each position."""
        x = self.hidden(tokens, segments=segments, real=real, recorder=recorder)
        return self.output(x, self.tokens)

    def hidden(
        self,
        tokens: Tokens,
        *,
        segments: Int[Tensor, "batch length"] | None = None,
        real: RealGiven = None,
        recorder: Recorder | None = None,
    ) -> Stream:
        """Return the input of the output projection, for losses that never hold all logits."""
        return self.head(self.encode(tokens, segments=segments, real=real, recorder=recorder))


class Classifier(EncoderModel):
    """A classifier, whose head gives a score per label of `config.labels`."""

    def forward(
        self,
        tokens: Tokens,
        *,
        segments: Int[Tensor, "batch length"] | None = None,
        real: RealGiven = None,
        recorder: Recorder | None = None,
    ) -> Float[Tensor, "batch labels"]:
        """Return the logits of each text's labels, from the vector of its first real token."""
        x = self.encode(tokens, segments=segments, real=real, recorder=recorder)
        mask = resolve_real(tokens, real, self.config)
        first = 0 if mask is None else mask.int().argmax(1)
        return self.head(x[torch.arange(len(x), device=x.device), first])
