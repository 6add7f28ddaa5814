"""One Transformer, rewritten: the same weights in programs that share no step of attention."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS, INNER, VOCAB, LAYERS, LIMIT = 24, 4, 40, 53, 2, 29
STYLES = ("matmul", "einsum", "fused", "loop", "torch", "kernel", "length_first")
FAMILIES = ("decoder", "encoder", "encoder-decoder")
D_HEAD = WIDTH // HEADS


def linear(seed: int, n_in: int, n_out: int) -> tuple[Tensor, Tensor]:
    """A weight and a bias that follow from the seed."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(n_out, n_in, generator=generator) / math.sqrt(n_in)
    return weight, 0.3 * torch.randn(n_out, generator=generator)


def as_module(weight: Tensor, bias: Tensor) -> nn.Linear:
    module = nn.Linear(weight.shape[1], weight.shape[0])
    module.weight.data, module.bias.data = weight.clone(), bias.clone()
    return module


class Attention(nn.Module):
    """`allowed` is (query, key), or None."""

    def __init__(self, style: str, seed: int) -> None:
        super().__init__()
        self.style = style
        parts = [linear(10 * seed + n, WIDTH, WIDTH) for n in range(4)]
        (wq, bq), (wk, bk), (wv, bv), (wo, bo) = parts
        if style in ("matmul", "kernel", "length_first"):
            self.q, self.k, self.v = as_module(wq, bq), as_module(wk, bk), as_module(wv, bv)
        elif style == "einsum":
            stacked = torch.stack([w.view(HEADS, D_HEAD, WIDTH) for w in (wq, wk, wv)])
            self.into = nn.Parameter(stacked.permute(0, 3, 1, 2).contiguous())
            self.shift = nn.Parameter(torch.stack([b.view(HEADS, D_HEAD) for b in (bq, bk, bv)]))
        elif style == "fused":
            self.qkv = as_module(torch.cat([wq, wk, wv]), torch.cat([bq, bk, bv]))
        elif style == "loop":
            self.heads = nn.ModuleList(
                nn.ModuleList(
                    as_module(w[at : at + D_HEAD], b[at : at + D_HEAD]) for w, b in parts[:3]
                )
                for at in range(0, WIDTH, D_HEAD)
            )
        elif style == "torch":
            self.whole = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
            self.whole.in_proj_weight.data = torch.cat([wq, wk, wv])
            self.whole.in_proj_bias.data = torch.cat([bq, bk, bv])
            self.whole.out_proj = type(self.whole.out_proj)(WIDTH, WIDTH)
            self.whole.out_proj.weight.data, self.whole.out_proj.bias.data = wo, bo
        if style != "torch":
            self.out = as_module(wo, bo)

    def forward(self, x: Tensor, memory: Tensor, allowed: Tensor | None) -> Tensor:
        return getattr(self, f"_{self.style}")(x, memory, allowed)

    def _matmul(self, x: Tensor, memory: Tensor, allowed: Tensor | None) -> Tensor:
        def split(t: Tensor) -> Tensor:
            return t.view(t.shape[0], t.shape[1], HEADS, D_HEAD).transpose(1, 2)

        q, k, v = split(self.q(x)), split(self.k(memory)), split(self.v(memory))
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(D_HEAD)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        merged = torch.matmul(scores.softmax(-1), v).transpose(1, 2).contiguous()
        return self.out(merged.view(*x.shape))

    def _einsum(self, x: Tensor, memory: Tensor, allowed: Tensor | None) -> Tensor:
        q = torch.einsum("btd,dhe->bthe", x, self.into[0]) + self.shift[0]
        k = torch.einsum("bsd,dhe->bshe", memory, self.into[1]) + self.shift[1]
        v = torch.einsum("bsd,dhe->bshe", memory, self.into[2]) + self.shift[2]
        scores = torch.einsum("bthe,bshe->bhts", q * D_HEAD**-0.5, k)
        if allowed is not None:
            scores = torch.where(allowed, scores, torch.full_like(scores, -1e9))
        weights = torch.softmax(scores, dim=-1)
        return self.out(torch.einsum("bhts,bshe->bthe", weights, v).flatten(2))

    def _fused(self, x: Tensor, memory: Tensor, allowed: Tensor | None) -> Tensor:
        q = self.qkv(x)[..., :WIDTH]
        k, v = self.qkv(memory)[..., WIDTH:].chunk(2, dim=-1)
        q, k, v = (t.unflatten(-1, (HEADS, D_HEAD)).transpose(1, 2) for t in (q, k, v))
        scores = (q / D_HEAD**0.25) @ (k / D_HEAD**0.25).mT
        if allowed is not None:
            scores = scores + torch.zeros(allowed.shape).masked_fill(~allowed, -30000.0)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def _loop(self, x: Tensor, memory: Tensor, allowed: Tensor | None) -> Tensor:
        found = []
        for q, k, v in self.heads:  # type: ignore[misc]
            scores = torch.bmm(q(x), k(memory).permute(0, 2, 1)) * (1 / math.sqrt(D_HEAD))
            if allowed is not None:
                scores[:, ~allowed] = -1e30
            weights = (scores - scores.amax(-1, keepdim=True)).exp()
            weights = weights / weights.sum(-1, keepdim=True)
            found.append(torch.bmm(weights, v(memory)))
        return self.out(torch.cat(found, dim=-1))

    def _torch(self, x: Tensor, memory: Tensor, allowed: Tensor | None) -> Tensor:
        mask = None if allowed is None else ~allowed
        return self.whole(x, memory, memory, attn_mask=mask, need_weights=False)[0]

    def _kernel(self, x: Tensor, memory: Tensor, allowed: Tensor | None) -> Tensor:
        q, k, v = (
            layer(t).view(len(t), -1, HEADS, D_HEAD).transpose(1, 2)
            for layer, t in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=allowed is not None)
        return self.out(y.transpose(1, 2).reshape(x.shape))

    def _length_first(self, x: Tensor, memory: Tensor, allowed: Tensor | None) -> Tensor:
        x, memory = x.transpose(0, 1), memory.transpose(0, 1)
        n, batch, _ = x.shape
        q = self.q(x).contiguous().view(n, batch * HEADS, D_HEAD).transpose(0, 1)
        k = self.k(memory).contiguous().view(-1, batch * HEADS, D_HEAD).transpose(0, 1)
        v = self.v(memory).contiguous().view(-1, batch * HEADS, D_HEAD).transpose(0, 1)
        scores = torch.baddbmm(torch.zeros(1), q * D_HEAD**-0.5, k.transpose(1, 2))
        if allowed is not None:
            scores = scores.masked_fill(~allowed[None], -torch.inf)
        y = torch.bmm(F.softmax(scores, dim=-1), v)
        return self.out(y.transpose(0, 1).contiguous().view(n, batch, WIDTH)).transpose(0, 1)


class HandNorm(nn.Module):
    """A norm step by step."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(dim=-1, keepdim=True)
        size = centred.square().mean(dim=-1, keepdim=True).add(1e-5).rsqrt()
        return centred * size * self.weight + self.bias


def norm(style: str, seed: int) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    weight = 1 + 0.3 * torch.randn(WIDTH, generator=generator)
    bias = 0.3 * torch.randn(WIDTH, generator=generator)
    if style in ("einsum", "loop"):
        return HandNorm(weight, bias)
    module = nn.LayerNorm(WIDTH)
    module.weight.data, module.bias.data = weight, bias
    return module


class FeedForward(nn.Module):
    def __init__(self, style: str, seed: int) -> None:
        super().__init__()
        self.style = style
        (w1, b1), (w2, b2) = linear(seed, WIDTH, INNER), linear(seed + 1, INNER, WIDTH)
        if style == "loop":
            self.up, self.down = nn.Conv1d(WIDTH, INNER, 1), nn.Conv1d(INNER, WIDTH, 1)
            w1, w2 = w1[..., None], w2[..., None]
            self.up.weight.data, self.up.bias.data = w1, b1  # type: ignore[union-attr]
            self.down.weight.data, self.down.bias.data = w2, b2  # type: ignore[union-attr]
        else:
            self.up, self.down = as_module(w1, b1), as_module(w2, b2)

    def forward(self, x: Tensor) -> Tensor:
        if self.style == "loop":
            return self.down(F.gelu(self.up(x.mT))).mT
        h = self.up(x)
        by_hand = 0.5 * h * (1 + torch.erf(h / math.sqrt(2)))
        return self.down(by_hand if self.style == "einsum" else F.gelu(h))


class Layer(nn.Module):
    def __init__(self, style: str, seed: int, crosses: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(norm(style, seed + n) for n in range(2 + crosses))
        self.attention = Attention(style, seed)
        self.cross = Attention(style, seed + 50) if crosses else None
        self.feed_forward = FeedForward(style, seed + 60)

    def forward(self, x: Tensor, allowed: Tensor | None, memory: Tensor | None) -> Tensor:
        h = self.norms[0](x)
        x = x + self.attention(h, h, allowed)
        if self.cross is not None:
            x = x + self.cross(self.norms[2](x), memory, None)
        return x + self.feed_forward(self.norms[1](x))


class Model(nn.Module):
    """A decoder, or an encoder."""

    def __init__(self, style: str, causal: bool, seed: int = 1, crosses: bool = False) -> None:
        super().__init__()
        self.causal = causal
        self.tokens, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LIMIT, WIDTH)
        self.tokens.weight.data = linear(seed + 900, WIDTH, VOCAB)[0] * 3
        self.places.weight.data = linear(seed + 901, WIDTH, LIMIT)[0]
        self.layers = nn.ModuleList(
            Layer(style, seed + 100 * n, crosses) for n in range(1, LAYERS + 1)
        )
        self.norm, self.head = norm(style, seed + 902), as_module(*linear(seed + 903, WIDTH, VOCAB))

    def states(self, tokens: Tensor, memory: Tensor | None = None) -> Tensor:
        n = tokens.shape[1]
        allowed = torch.ones(n, n, dtype=torch.bool).tril() if self.causal else None
        x = self.tokens(tokens) + self.places(torch.arange(n))
        for layer in self.layers:
            x = layer(x, allowed, memory)
        return self.norm(x)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.states(tokens))


class Pair(nn.Module):
    """An encoder beside a decoder."""

    def __init__(self, style: str) -> None:
        super().__init__()
        self.encoder = Model(style, causal=False, seed=3000)
        self.decoder = Model(style, causal=True, seed=6000, crosses=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self.encoder.states(source)
        return self.decoder.head(self.decoder.states(target, memory))


def rewrite(style: str, family: str) -> Any:
    """A model of a family, in a style; all styles compute the same."""
    if family == "encoder-decoder":
        return Pair(style).eval()
    return Model(style, causal=family == "decoder").eval()
