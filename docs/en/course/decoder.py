"""One whole decoder of today, from characters to text of its own. It needs torch and nothing else.
The parts are those of Llama; the table of tokens also scores, as in Llama 3.2 1B."""

import math
import random
import unicodedata

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Cache = list[list[Tensor]]  # for each layer nothing yet, or its keys and its values


class RMSNorm(nn.Module):
    """Divides by the root of the mean square: no mean is subtracted, no bias added."""

    def __init__(self, d_model: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x / (x.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()


def rotate(x: Tensor, first: int) -> Tensor:
    """Features i and i + d_head / 2 are a point. At position p it is rotated by p · θᵢ. The tokens
    of x stand at positions first, first + 1, …"""
    half = x.shape[-1] // 2
    speed = 10000 ** (-torch.arange(half).to(x) / half)  # θᵢ, radians per token
    angle = (first + torch.arange(x.shape[2]).to(x))[:, None] * speed  # (length, d_head / 2)
    a, b = x.chunk(2, dim=-1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class Attention(nn.Module):
    """Each token looks at itself and at those before it. Groups of query heads share keys."""

    def __init__(self, d_model: int, n_heads: int, n_kv_heads: int):
        super().__init__()
        self.d_head, self.group = d_model // n_heads, n_heads // n_kv_heads
        d_kv = n_kv_heads * self.d_head
        self.query, self.key = linear(d_model, d_model), linear(d_model, d_kv)
        self.value, self.output = linear(d_model, d_kv), linear(d_model, d_model)

    def forward(self, x: Tensor, cache: list[Tensor] | None) -> Tensor:
        def split(t: Tensor) -> Tensor:  # (batch, length, width) → (batch, heads, length, d_head)
            return t.unflatten(2, (-1, self.d_head)).transpose(1, 2)

        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        past = cache[0].shape[2] if cache else 0  # how many tokens came in earlier calls
        q, k = rotate(q, past), rotate(k, past)  # values are not rotated
        if cache:
            k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
        if cache is not None:
            cache[:] = k, v  # rotated already, and n_kv_heads of them
        k, v = (t.repeat_interleave(self.group, dim=1) for t in (k, v))  # one for each query head
        scores = q @ k.mT / math.sqrt(self.d_head)  # (batch, heads, query, key)
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(past + 1)
        weights = scores.masked_fill(later, -math.inf).softmax(dim=-1)
        return self.output((weights @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """A sublayer adds to x what it makes of norm(x): first attention, then SwiGLU."""

    def __init__(self, d_model: int, n_heads: int, n_kv_heads: int, d_ff: int):
        super().__init__()
        self.attention = Attention(d_model, n_heads, n_kv_heads)
        self.gate, self.up = linear(d_model, d_ff), linear(d_model, d_ff)
        self.down = linear(d_ff, d_model)
        self.norm1, self.norm2 = RMSNorm(d_model), RMSNorm(d_model)

    def forward(self, x: Tensor, cache: list[Tensor] | None) -> Tensor:
        x = x + self.attention(self.norm1(x), cache)
        normed = self.norm2(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Decoder(nn.Module):
    """The logits of the token after each token."""

    def __init__(self, vocabulary, d_model=64, n_layers=2, n_heads=4, n_kv_heads=2, d_ff=128):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, d_model)
        nn.init.normal_(self.tokens.weight, std=0.02)
        sizes = (d_model, n_heads, n_kv_heads, d_ff)
        self.layers = nn.ModuleList(Layer(*sizes) for _ in range(n_layers))
        self.norm = RMSNorm(d_model)

    def forward(self, ids: Tensor, cache: Cache | None = None) -> Tensor:
        """With a cache, ids are only the tokens that are new."""
        x = self.tokens(ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, None if cache is None else cache[i])
        return self.norm(x) @ self.tokens.weight.T  # the table that embeds also scores


def linear(d_in: int, d_out: int) -> nn.Linear:
    return nn.Linear(d_in, d_out, bias=False)


def loss_of(model: Decoder, rows: Tensor) -> Tensor:
    """Every token but the last predicts the next one."""
    return F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def train(model: Decoder, ids: Tensor, steps: int, length=64, lr=0.005) -> None:
    """Each step reads 16 pieces of the text, from random places. The learning rate falls to 0."""
    optimizer = torch.optim.AdamW(model.parameters(), lr)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = lr * (1 - step / steps)
        starts = torch.randint(len(ids) - length, (16, 1))
        optimizer.zero_grad()
        loss_of(model, ids[starts + torch.arange(length + 1)]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


@torch.no_grad()
def sample(model: Decoder, ids: Tensor, n: int, temperature: float) -> Tensor:
    """n more tokens. The first pass reads the prompt, each later one the token drawn last."""
    cache: Cache = [[] for _ in model.layers]
    new = ids
    for _ in range(n):
        logits = model(new, cache)[:, -1]
        new = (logits / temperature).softmax(dim=-1).multinomial(1)
        ids = torch.cat((ids, new), dim=1)
    return ids


@torch.no_grad()
def check(model: Decoder, ids: Tensor) -> None:
    """Two properties of every decoder, whatever it has learnt. ids: (1, 32)."""
    whole, cache = model(ids), [[] for _ in model.layers]
    pieces = torch.cat([model(piece, cache) for piece in ids.split([7, 1, 1, 5, 1, 17], 1)], 1)
    print("in pieces, with the cache, the same logits:", torch.allclose(pieces, whole))
    other = torch.cat((ids[:, :20], ids[:, 20:].flip(1)), dim=1)
    same = torch.allclose(model(other)[:, :20], whole[:, :20])
    print("tokens 20 to 31 reversed, the same logits before:", same)


if __name__ == "__main__":
    torch.manual_seed(0)
    codes = [*range(0x2190, 0x2400), *range(0x2500, 0x27C0), *range(0x1F300, 0x1F650)]
    random.Random(0).shuffle(codes)
    text = "\n".join(unicodedata.name(chr(code)) for code in codes)  # or open(FILE).read()
    characters = sorted(set(text))
    ids = torch.tensor([characters.index(c) for c in text])
    known, held_out = ids.tensor_split([len(ids) * 9 // 10])
    held_out = held_out.unfold(0, 65, 64)[:100]  # the last token of a row begins the next
    model = Decoder(len(characters)).double()  # so that every machine prints the same
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(text):,} characters")
    check(model, held_out[:1, :32])
    for steps in (0, 400):
        train(model, known, steps)
        with torch.no_grad():
            print(f"{steps} steps: loss {loss_of(model, held_out).item():.2f}")
    prompts = torch.full((8, 1), characters.index("\n"))
    for row in sample(model, prompts, 40, temperature=0.7).tolist():
        name = "".join(characters[i] for i in row).split("\n")[1]
        print(name if name in text.split("\n") else f"{name} (made up)")
