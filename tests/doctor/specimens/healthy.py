"""Small Transformers as people write them, in good health. A specimen changes one method.

They are written without clearhead's parts on purpose: the doctor must manage without knowing
them. Everything is small, and no two sizes are alike.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

VOCAB = 37
WIDTH = 24
HEADS = 3
LAYERS = 2
LIMIT = 32
PAD = 0


def causal(n_queries: int, n_keys: int) -> torch.Tensor:
    return torch.ones(n_queries, n_keys, dtype=torch.bool).tril(n_keys - n_queries)


class Attention(nn.Module):
    def __init__(self, width: int = WIDTH, n_heads: int = HEADS, p: float = 0.1):
        super().__init__()
        self.n_heads = n_heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.dropout = nn.Dropout(p)

    def split(self, x):
        batch, length, width = x.shape
        return x.view(batch, length, self.n_heads, width // self.n_heads).transpose(1, 2)

    def merge(self, x):
        batch, heads, length, width = x.shape
        return x.transpose(1, 2).reshape(batch, length, heads * width)

    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])

    def mask(self, scores, allowed):
        return (
            scores
            if allowed is None
            else scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
        )

    def normalise(self, scores, allowed):
        return scores.softmax(dim=-1)

    def drop(self, weights):
        return self.dropout(weights)

    def forward(self, x, memory, allowed=None, past=None):
        """The output, and the keys and values of everything so far."""
        q, k, v = (
            self.split(self.query(x)),
            self.split(self.key(memory)),
            self.split(self.value(memory)),
        )
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        weights = self.normalise(self.mask(self.scores(q, k), allowed), allowed)
        return self.output(self.merge(self.drop(weights) @ v)), (k, v)


class FeedForward(nn.Sequential):
    def __init__(self, width: int = WIDTH):
        super().__init__(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))


class Block(nn.Module):
    """Pre-norm; with cross-attention where it is given a memory."""

    def __init__(self, *, cross=False, attention=Attention, width: int = WIDTH, **settings):
        super().__init__()
        self.attention = attention(width, **settings)
        self.norm_1 = self.make_norm(width)
        self.cross = attention(width, **settings) if cross else None
        self.norm_c = self.make_norm(width) if cross else None
        self.ff = FeedForward(width)
        self.norm_2 = self.make_norm(width)
        self.dropout = nn.Dropout(0.1)

    def make_norm(self, width):
        return nn.LayerNorm(width)

    def attend(self, x, allowed, past):
        h = self.norm_1(x)
        change, past = self.attention(h, h, allowed, past)
        return x + self.dropout(change), past

    def look(self, x, memory, allowed):
        change, _ = self.cross(self.norm_c(x), memory, allowed)
        return x + self.dropout(change)

    def feed(self, x):
        return x + self.dropout(self.ff(self.norm_2(x)))

    def forward(self, x, allowed=None, memory=None, memory_allowed=None, past=None):
        x, past = self.attend(x, allowed, past)
        if self.cross is not None:
            x = self.look(x, memory, memory_allowed)
        return self.feed(x), past


class Embedding(nn.Module):
    def __init__(self, width: int = WIDTH, pad=None):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, width, padding_idx=pad)
        self.positions = nn.Embedding(LIMIT, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, tokens, start=0, mask=None):
        places = torch.arange(start, start + tokens.shape[1])
        if mask is not None:
            places = (mask.cumsum(dim=1) - 1).clamp(min=0)
        return self.dropout(self.tokens(tokens) + self.positions(places))


class TokensOnly(Embedding):
    """Positions are attention's business."""

    def __init__(self, width=WIDTH):
        super().__init__(width)
        del self.positions

    def forward(self, tokens, start=0, mask=None):
        return self.dropout(self.tokens(tokens))


class Decoder(nn.Module):
    """tokens → logits"""

    max_length = LIMIT

    def __init__(self, *, block=Block, embedding=Embedding, width: int = WIDTH, **settings):
        super().__init__()
        self.embedding = embedding(width)
        self.blocks = self.make_blocks(lambda: block(width=width, **settings))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCAB)

    def make_blocks(self, make):
        return nn.ModuleList([make() for _ in range(LAYERS)])

    def allowed(self, n_queries, n_keys):
        return causal(n_queries, n_keys)

    def scores(self, x):
        return self.head(self.norm(x))

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x, _ = block(x, self.allowed(tokens.shape[1], tokens.shape[1]))
        return self.scores(x)


class PaddedDecoder(Decoder):
    """tokens, and which of them are real"""

    def allowed_and_real(self, mask, length):
        allowed = self.allowed(length, length)
        return allowed if mask is None else allowed & mask[:, None, None, :]

    def forward(self, tokens, mask=None):
        x = self.embedding(tokens, mask=mask)
        for block in self.blocks:
            x, _ = block(x, self.allowed_and_real(mask, tokens.shape[1]))
        return self.scores(x)


class CachedDecoder(Decoder):
    """new tokens and a cache → logits, and the cache grown by them"""

    def start(self, cache):
        return 0 if cache is None else cache[0][0].shape[2]

    def forward(self, tokens, cache=None):
        start = self.start(cache)
        old = 0 if cache is None else cache[0][0].shape[2]
        x, grown = self.embedding(tokens, start), []
        for index, block in enumerate(self.blocks):
            allowed = self.allowed(tokens.shape[1], old + tokens.shape[1])
            x, past = block(x, allowed, past=None if cache is None else cache[index])
            grown.append(past)
        return self.scores(x), grown


class LossDecoder(Decoder):
    """tokens, targets → logits, loss"""

    def loss(self, logits, targets):
        kept = targets != -100
        total = F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum"
        )
        return total / kept.sum().clamp(min=1)

    def forward(self, tokens, targets=None):
        logits = super().forward(tokens)
        return logits, None if targets is None else self.loss(logits, targets)


class LabelDecoder(Decoder):
    """tokens, labels → logits, loss: the model shifts, as Hugging Face's do"""

    shift = 1

    def forward(self, tokens, labels=None):
        logits = super().forward(tokens)
        if labels is None:
            return logits, None
        kept = logits[:, : logits.shape[1] - self.shift].flatten(0, 1)
        targets = labels[:, self.shift :].flatten()
        total = F.cross_entropy(kept, targets, ignore_index=-100, reduction="sum")
        return logits, total / (targets != -100).sum().clamp(min=1)


class WeightsDecoder(Decoder):
    """Returns its attention weights on request."""

    class KeepingAttention(Attention):
        def drop(self, weights):
            self.kept = weights
            return self.dropout(weights)

    def __init__(self, *, attention=KeepingAttention, **settings):
        super().__init__(attention=attention, **settings)

    def forward(self, tokens, return_attention=False):
        logits = super().forward(tokens)
        if not return_attention:
            return logits
        return logits, [block.attention.kept for block in self.blocks]


class GeneratingDecoder(Decoder):
    """Samples, from the last LIMIT tokens at most."""

    def distribution(self, logits, temperature, top_k):
        if temperature == 0:
            top_k, temperature = 1, 1.0
        logits = logits / temperature
        if top_k is not None:
            if top_k < 1:
                raise ValueError(f"top_k={top_k} must be at least 1")
            best = logits.topk(min(top_k, VOCAB)).values
            logits = logits.masked_fill(logits < best[:, -1:], -torch.inf)
        return logits.softmax(dim=-1)

    def crop(self, tokens):
        return tokens[:, -LIMIT:]

    def is_done(self, token, eos_id):
        return eos_id is not None and bool((token == eos_id).all())

    def before(self):
        self.eval()

    def after(self, was_training):
        self.train(was_training)

    @torch.no_grad()
    def generate(self, tokens, max_new_tokens, temperature=1.0, top_k=None, eos_id=None):
        was_training = self.training
        self.before()
        for _ in range(max_new_tokens):
            logits = self(self.crop(tokens))[:, -1]
            token = torch.multinomial(self.distribution(logits, temperature, top_k), 1)
            tokens = torch.cat((tokens, token), dim=1)
            if self.is_done(token, eos_id):
                break
        self.after(was_training)
        return tokens


class BeamDecoder(CachedDecoder):
    """Beam search with a cache; returns the best sequence and its log-probability."""

    def reorder(self, cache, rows):
        return [(k[rows], v[rows]) for k, v in cache]

    @torch.no_grad()
    def generate(self, tokens, max_new_tokens, num_beams=1):
        if tokens.shape[1] + max_new_tokens > LIMIT:
            raise ValueError(f"max_new_tokens={max_new_tokens} does not fit in {LIMIT} positions")
        training = self.training
        self.eval()
        logits, cache = self(tokens)
        score = torch.zeros(1)
        for step in range(max_new_tokens):
            total = score[:, None] + logits[:, -1].log_softmax(dim=-1)
            score, best = total.flatten().topk(num_beams)
            rows, new = best // VOCAB, best % VOCAB
            tokens = torch.cat((tokens[rows], new[:, None]), dim=1)
            # The first step widens one row to all beams: even the careless do that.
            cache = self.reorder(cache, rows) if step else [(k[rows], v[rows]) for k, v in cache]
            logits, cache = self(new[:, None], cache)
        self.train(training)
        return tokens[:1], score[:1]


class Encoder(nn.Module):
    """tokens and a padding mask (True: padding, as in torch) → logits"""

    def __init__(self, *, block=Block, embedding=Embedding, width: int = WIDTH, **settings):
        super().__init__()
        self.embedding = embedding(width)
        self.blocks = nn.ModuleList([block(width=width, **settings) for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCAB)

    def allowed(self, padding_mask, length, layer):
        return None if padding_mask is None else ~padding_mask[:, None, None, :]

    def forward(self, tokens, padding_mask=None):
        x = self.embedding(tokens)
        for index, block in enumerate(self.blocks):
            x, _ = block(x, self.allowed(padding_mask, tokens.shape[1], index))
        return self.head(self.norm(x))


class Seq2Seq(nn.Module):
    """source, target and which of their tokens are real → logits"""

    def __init__(self, *, block=Block, embedding=Embedding, width: int = WIDTH, **settings):
        super().__init__()
        self.embedding = embedding(width)
        self.target_embedding = embedding(width)
        self.encoder = nn.ModuleList([block(width=width, **settings) for _ in range(LAYERS)])
        self.encoder_norm = nn.LayerNorm(width)
        self.decoder = nn.ModuleList(
            [block(width=width, cross=True, **settings) for _ in range(LAYERS)]
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCAB)

    def encode(self, source, allowed):
        x = self.embedding(source)
        for block in self.encoder:
            x, _ = block(x, allowed)
        return self.encoder_norm(x)

    def decode(self, target, memory, allowed, memory_allowed):
        x = self.target_embedding(target)
        for block in self.decoder:
            x, _ = block(x, allowed, memory, memory_allowed)
        return self.head(self.norm(x))

    def masks(self, source, target, source_mask, target_mask):
        """For the encoder, for the decoder, and for what the decoder sees of the encoder."""
        keys = None if source_mask is None else source_mask[:, None, None, :]
        past = causal(target.shape[1], target.shape[1])
        if target_mask is not None:
            past = past & target_mask[:, None, None, :]
        return keys, past, keys

    def forward(self, source, target, source_mask=None, target_mask=None):
        keys, past, seen = self.masks(source, target, source_mask, target_mask)
        return self.decode(target, self.encode(source, keys), past, seen)
