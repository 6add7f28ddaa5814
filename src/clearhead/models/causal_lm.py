"""The decoder-only model, which predicts each token from the tokens before it (GPT-2, Llama)."""

from torch import nn

from clearhead.config import ModelConfig
from clearhead.errors import InputError
from clearhead.models.inputs import RealGiven, resolve_real, sequence_positions
from clearhead.models.own_parts import OwnParts
from clearhead.parts import masks
from clearhead.parts.cache import Cache
from clearhead.parts.embeddings import InputEmbedding, OutputProjection, TokenEmbedding
from clearhead.parts.positions import check_length
from clearhead.parts.recorder import Recorder
from clearhead.shapes import Int, Logits, Stream, Tensor, Tokens
from clearhead.stacks.decoder import Decoder


class CausalLM(nn.Module):
    """A language model: the decoder stack with token embeddings and an output projection."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        tokens: TokenEmbedding,
        embedding: InputEmbedding,
        decoder: Decoder,
        output: OutputProjection,
    ) -> None:
        super().__init__()
        self.config = config
        self.own_parts = OwnParts()
        self.tokens = tokens
        self.embedding = embedding
        self.decoder = decoder
        self.output = output

    def forward(
        self,
        tokens: Tokens,
        *,
        real: RealGiven = None,
        documents: Int[Tensor, "batch length"] | None = None,
        cache: Cache | None = None,
        recorder: Recorder | None = None,
    ) -> Logits:
        """Return the logits of the token that follows each token.

        Padding may stand on either side; `real` says how it is known (see `RealGiven`). `documents`
        gives each token the number of its document, if documents are packed into rows. With a
        cache, `tokens` are only the new ones, and the cache grows by them."""
        x = self.hidden(tokens, real=real, documents=documents, cache=cache, recorder=recorder)
        return self.output(x, self.tokens)

    def hidden(
        self,
        tokens: Tokens,
        *,
        real: RealGiven = None,
        documents: Int[Tensor, "batch length"] | None = None,
        cache: Cache | None = None,
        recorder: Recorder | None = None,
    ) -> Stream:
        """Return the input of the output projection, for losses that never hold all logits."""
        mask = resolve_real(tokens, real, self.config)
        if cache is None:
            check_length(tokens.shape[1], self.config.max_length)
        if cache is not None and documents is not None:
            raise InputError("packed documents cannot be cached; give each document its own row")
        if cache is not None:
            positions = cache.extend(tokens.shape[1], mask, self.config.max_length)
        elif documents is not None:
            positions = masks.count_document_positions(documents, mask)
        else:
            positions = sequence_positions(tokens, mask)
        return self.decoder(
            self.embedding(self.tokens(tokens), positions, mask),
            positions,
            mask,
            documents=None if documents is None else masks.same_document(documents),
            cache=cache,
            recorder=recorder,
        )

    def new_cache(self, batch_size: int, capacity: int = 0) -> Cache:
        """Return an empty cache. It reserves memory for `capacity` tokens at once, and more as it
        grows."""
        return self.decoder.new_cache(batch_size, capacity, like=self.tokens.weight)
