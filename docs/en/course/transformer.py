"""One whole Transformer, from characters to a trained model. It needs torch and nothing else.
Numbers in brackets are sections of the paper, "Attention Is All You Need"."""

import math
import random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD, BOS, EOS = 0, 1, 2  # fills short rows up; begins every target; ends every text
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
CHARACTERS = LETTERS + "零一二三四五六七八九十百千"  # the last ones are for translating numbers
VOCABULARY = 3 + len(CHARACTERS)


def to_batch(texts: list[str]) -> Tensor:
    """One row of token numbers for each text, padded on the right."""
    rows = [torch.tensor([3 + CHARACTERS.index(c) for c in text] + [EOS]) for text in texts]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def sinusoid(length: int, d_model: int) -> Tensor:
    """(3.5) One row for each position: sine and cosine of d_model / 2 angles, side by side."""
    angle = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack((angle.sin(), angle.cos()), dim=2).flatten(1)


class Attention(nn.Module):
    """(3.2) Every position of x asks, the positions of source answer."""

    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        self.n_heads = n_heads
        self.query, self.key = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.value, self.output = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, source: Tensor, allowed: Tensor) -> Tensor:
        def split(t: Tensor) -> Tensor:  # (batch, length, width) → (batch, heads, length, d_head)
            return t.unflatten(2, (self.n_heads, -1)).transpose(1, 2)

        q, k, v = split(self.query(x)), split(self.key(source)), split(self.value(source))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (batch, heads, query, key)
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1)  # what each query gives to the keys sums to 1
        return self.output((weights @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """(3.1) A layer of the encoder; with cross-attention, of the decoder. A sublayer adds to x what
    it makes of norm(x). The paper normalises the sum instead: norm(x + sublayer(x))."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int, cross: bool):
        super().__init__()
        self.self_attention = Attention(d_model, n_heads)
        self.cross_attention = Attention(d_model, n_heads) if cross else None
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm1, self.norm3 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model) if cross else None

    def forward(self, x: Tensor, seen: Tensor, memory=None, source_seen=None) -> Tensor:
        normed = self.norm1(x)
        x = x + self.self_attention(normed, normed, seen)
        if self.cross_attention is not None:
            x = x + self.cross_attention(self.norm2(x), memory, source_seen)
        return x + self.down(self.up(self.norm3(x)).relu())  # (3.3) for each token by itself


class Transformer(nn.Module):
    """Figure 1: the logits of the token after each target token, given the whole source."""

    def __init__(self, vocabulary=VOCABULARY, d_model=64, n_layers=2, n_heads=4, d_ff=128):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, d_model)
        nn.init.normal_(self.tokens.weight, std=0.1)
        sizes = (d_model, n_heads, d_ff)
        self.encoder = nn.ModuleList(Layer(*sizes, cross=False) for _ in range(n_layers))
        self.decoder = nn.ModuleList(Layer(*sizes, cross=True) for _ in range(n_layers))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def embed(self, ids: Tensor) -> Tensor:
        """(3.4) Times √d_model, so that tokens are as large as positions."""
        x = self.tokens(ids) * math.sqrt(self.tokens.embedding_dim)
        return x + sinusoid(x.shape[1], x.shape[2]).to(x)

    def encode(self, source: Tensor) -> Tensor:
        seen, x = (source != PAD)[:, None, None], self.embed(source)  # padding is no key
        for layer in self.encoder:
            x = layer(x, seen)
        return self.encoder_norm(x)

    def decode(self, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        n, source_seen = target.shape[1], (source != PAD)[:, None, None]
        causal = torch.ones(n, n, dtype=torch.bool, device=target.device).tril()
        seen = causal & (target != PAD)[:, None, None]  # nothing later, and no padding
        x = self.embed(target)
        for layer in self.decoder:  # every layer reads the same memory
            x = layer(x, seen, memory, source_seen)
        return self.decoder_norm(x) @ self.tokens.weight.T  # the table that embeds also scores

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.decode(target, self.encode(source), source)


def loss_of(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    """The decoder reads <bos> and the target, and predicts the target and <eos>."""
    inputs = F.pad(target, (1, 0), value=BOS)[:, :-1]
    return F.cross_entropy(model(source, inputs).flatten(0, 1), target.flatten(), ignore_index=PAD)


def train(pairs, steps: int, lr: float = 0.002) -> Transformer:
    """`pairs(n)` makes n pairs of texts. The learning rate rises for 100 steps, then falls."""
    model = Transformer()
    optimizer = torch.optim.Adam(model.parameters(), lr, betas=(0.9, 0.98))  # (5.3)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = lr * min((step + 1) / 100, (steps - step) / (steps - 100))
        sources, targets = zip(*pairs(64))
        optimizer.zero_grad()
        loss_of(model, to_batch(sources), to_batch(targets)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


@torch.no_grad()
def translate(model: Transformer, text: str) -> str:
    """The likeliest token, again and again, until <eos>."""
    source, target = to_batch([text]), torch.tensor([[BOS]])
    memory = model.encode(source)  # once
    while target[0, -1] != EOS and target.shape[1] < 32:
        best = model.decode(target, memory, source)[:, -1:].argmax(dim=-1)
        target = torch.cat((target, best), dim=1)
    return "".join(CHARACTERS[i - 3] for i in target[0, 1:].tolist() if i > EOS)


def strings(n: int) -> list[tuple[str, str]]:
    """The copy task: random strings of 3 to 16 characters, and the same again."""
    made = ["".join(random.choices(LETTERS, k=random.randint(3, 16))) for _ in range(n)]
    return list(zip(made, made))


if __name__ == "__main__":
    torch.manual_seed(0)
    random.seed(0)
    model = train(strings, steps=600)
    print(translate(model, "clearhead2026"))
    print(sum(translate(model, text) == copy for text, copy in strings(100)), "of 100 copied")
