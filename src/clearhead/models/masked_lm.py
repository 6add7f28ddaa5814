"""The encoder alone: fills in masked tokens from both sides (BERT)."""

from torch import nn

from clearhead.config import ModelConfig
from clearhead.errors import InputError
from clearhead.models.inputs import RealGiven, resolve_real, sequence_positions
from clearhead.models.own_parts import OwnParts
from clearhead.parts.embeddings import (
    InputEmbedding,
    MaskedLMHead,
    OutputProjection,
    TokenEmbedding,
)
from clearhead.parts.positions import check_length
from clearhead.parts.recorder import Recorder
from clearhead.shapes import Int, Logits, Stream, Tensor, Tokens
from clearhead.stacks.encoder import Encoder


class MaskedLM(nn.Module):
    """A masked language model: the encoder stack with embeddings and a head over the vocabulary."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        tokens: TokenEmbedding,
        embedding: InputEmbedding,
        encoder: Encoder,
        head: MaskedLMHead,
        output: OutputProjection,
    ) -> None:
        super().__init__()
        self.config = config
        self.own_parts = OwnParts()
        self.tokens = tokens
        self.embedding = embedding
        self.encoder = encoder
        self.head = head
        self.output = output

    def forward(
        self,
        tokens: Tokens,
        *,
        segments: Int[Tensor, "batch length"] | None = None,
        real: RealGiven = None,
        recorder: Recorder | None = None,
    ) -> Logits:
        """Logits of the token that belongs at each position."""
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
        """The input of the output projection, for losses that never hold all logits."""
        return self.head(self.encode(tokens, segments=segments, real=real, recorder=recorder))

    def encode(
        self,
        tokens: Tokens,
        *,
        segments: Int[Tensor, "batch length"] | None = None,
        real: RealGiven = None,
        recorder: Recorder | None = None,
    ) -> Stream:
        """A vector per token that depends on the whole sequence: the input of a classifier."""
        check_length(tokens.shape[1], self.config.max_length)
        if segments is not None and not self.config.n_segments:
            raise InputError(
                "this model has no segments; build it with n_segments, or leave them out"
            )
        mask = resolve_real(tokens, real, self.config)
        positions = sequence_positions(tokens, mask)
        x = self.embedding(self.tokens(tokens), positions, mask, segments)
        return self.encoder(x, positions, mask, recorder)
