"""The whole of Figure 1: an encoder reads the source, a decoder generates the target."""

from torch import nn

from clearhead.config import ModelConfig
from clearhead.errors import InputError
from clearhead.models.inputs import RealGiven, resolve_real, sequence_positions
from clearhead.models.own_parts import OwnParts
from clearhead.parts.cache import Cache
from clearhead.parts.embeddings import InputEmbedding, OutputProjection, TokenEmbedding
from clearhead.parts.positions import check_length
from clearhead.parts.recorder import Recorder
from clearhead.shapes import Int, Logits, Stream, Tensor, Tokens, check_rows
from clearhead.stacks.decoder import Decoder, Memory
from clearhead.stacks.encoder import Encoder

Source = Int[Tensor, "batch source"]


class Seq2Seq(nn.Module):
    """The paper's model: encoder and decoder stacks with their embeddings and output projection."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        tokens: TokenEmbedding,
        target_tokens: TokenEmbedding | None,
        embedding: InputEmbedding,
        target_embedding: InputEmbedding,
        encoder: Encoder,
        decoder: Decoder,
        output: OutputProjection,
    ) -> None:
        """`target_tokens` is None if source and target share one table."""
        super().__init__()
        self.config = config
        self.own_parts = OwnParts()
        self.tokens = tokens
        self.target_tokens = target_tokens
        self.embedding = embedding
        self.encoder = encoder
        self.target_embedding = target_embedding
        self.decoder = decoder
        self.output = output

    @property
    def target_table(self) -> TokenEmbedding:
        """The token table of the target language: its own, or the one that both languages share."""
        return self.tokens if self.target_tokens is None else self.target_tokens

    def forward(
        self,
        source: Source,
        target: Tokens,
        *,
        source_real: RealGiven = None,
        target_real: RealGiven = None,
        recorder: Recorder | None = None,
    ) -> Logits:
        """Return the logits of the token that follows each target token, given the whole source.

        Padding may stand on either side; `source_real` and `target_real` say how it is known
        (see `RealGiven`)."""
        memory = self.encode(source, real=source_real, recorder=recorder)
        return self.decode(target, memory, real=target_real, recorder=recorder)

    def encode(
        self, source: Source, *, real: RealGiven = None, recorder: Recorder | None = None
    ) -> Memory:
        """Run the encoder once. Any number of decoding steps can use the result."""
        mask = resolve_real(source, real, self.config)
        check_length(source.shape[1], self.config.max_length)
        positions = sequence_positions(source, mask)
        x = self.embedding(self.tokens(source), positions, mask)
        return Memory(self.encoder(x, positions, mask, recorder), mask)

    def decode(
        self,
        target: Tokens,
        memory: Memory | None = None,
        *,
        real: RealGiven = None,
        cache: Cache | None = None,
        recorder: Recorder | None = None,
    ) -> Logits:
        """Run the decoder. Either `memory` is the encoded source, or the cache holds the source and
        `target` is only the new tokens."""
        x = self.decode_hidden(target, memory, real=real, cache=cache, recorder=recorder)
        return self.output(x, self.target_table)

    def decode_hidden(
        self,
        target: Tokens,
        memory: Memory | None = None,
        *,
        real: RealGiven = None,
        cache: Cache | None = None,
        recorder: Recorder | None = None,
    ) -> Stream:
        """Return the input of the output projection, for losses that never hold all logits."""
        if (memory is None) == (cache is None):
            raise InputError(
                "decode attends to one source; pass either the memory that encode returned, "
                "or a cache made by new_cache(memory)"
            )
        mask = resolve_real(target, real, self.config)
        if memory is not None:
            check_rows(memory.states, target)
        if cache is None:
            check_length(target.shape[1], self.config.max_length)
            positions = sequence_positions(target, mask)
        else:
            positions = cache.extend(target.shape[1], mask, self.config.max_length)
        return self.decoder(
            self.target_embedding(self.target_table(target), positions, mask),
            positions,
            mask,
            memory=memory,
            cache=cache,
            recorder=recorder,
        )

    def new_cache(self, memory: Memory, capacity: int = 0) -> Cache:
        """Return a cache for target tokens over a source that has been encoded. It reserves memory
        for `capacity` tokens at once, and more as it grows."""
        return self.decoder.new_cache(len(memory.states), capacity, self.tokens.weight, memory)
