"""今天的一个完整解码器，从字符到自己写出的文本，只用到 torch。
部件与 Llama 相同；嵌入表同时用来打分，与 Llama 3.2 1B 一样。"""

import math
import random
import unicodedata

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Cache = list[list[Tensor]]  # 每一层要么还是空的，要么是键和值


class RMSNorm(nn.Module):
    """除以均方根：不减均值，也没有偏置。"""

    def __init__(self, d_model: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x / (x.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()


def rotate(x: Tensor, first: int) -> Tensor:
    """特征 i 和 i + d_head / 2 合成一个点，在位置 p 旋转 p · θᵢ。
    x 的词元依次在位置 first、first + 1……"""
    half = x.shape[-1] // 2
    speed = 10000 ** (-torch.arange(half).to(x) / half)  # θᵢ，每个词元转多少弧度
    angle = (first + torch.arange(x.shape[2]).to(x))[:, None] * speed  # (length, d_head / 2)
    a, b = x.chunk(2, dim=-1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class Attention(nn.Module):
    """每个词元只看自己和前面的词元。同一组的查询头共用键和值。"""

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
        past = cache[0].shape[2] if cache else 0  # 前几次调用一共来过多少个词元
        q, k = rotate(q, past), rotate(k, past)  # 值不旋转
        if cache:
            k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
        if cache is not None:
            cache[:] = k, v  # 已经旋转过，只有 n_kv_heads 个头
        k, v = (t.repeat_interleave(self.group, dim=1) for t in (k, v))  # 每个查询头一份
        scores = q @ k.mT / math.sqrt(self.d_head)  # (batch, heads, query, key)
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(past + 1)
        weights = scores.masked_fill(later, -math.inf).softmax(dim=-1)
        return self.output((weights @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """子层读 norm(x)，结果加到 x 上：先是注意力，再是 SwiGLU。"""

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
    """给出每个词元之后那个词元的 logits。"""

    def __init__(self, vocabulary, d_model=64, n_layers=2, n_heads=4, n_kv_heads=2, d_ff=128):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, d_model)
        nn.init.normal_(self.tokens.weight, std=0.02)
        sizes = (d_model, n_heads, n_kv_heads, d_ff)
        self.layers = nn.ModuleList(Layer(*sizes) for _ in range(n_layers))
        self.norm = RMSNorm(d_model)

    def forward(self, ids: Tensor, cache: Cache | None = None) -> Tensor:
        """有缓存时，ids 只含新的词元。"""
        x = self.tokens(ids)
        for i, layer in enumerate(self.layers):
            x = layer(x, None if cache is None else cache[i])
        return self.norm(x) @ self.tokens.weight.T  # 嵌入表同时用来打分


def linear(d_in: int, d_out: int) -> nn.Linear:
    return nn.Linear(d_in, d_out, bias=False)


def loss_of(model: Decoder, rows: Tensor) -> Tensor:
    """除最后一个以外，每个词元都预测下一个。"""
    return F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def train(model: Decoder, ids: Tensor, steps: int, length=64, lr=0.005) -> None:
    """每一步从文本里随机取 16 段来读。学习率逐步降到 0。"""
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
    """再写 n 个词元。第一遍读整段提示，以后每遍只读刚抽到的词元。"""
    cache: Cache = [[] for _ in model.layers]
    new = ids
    for _ in range(n):
        logits = model(new, cache)[:, -1]
        new = (logits / temperature).softmax(dim=-1).multinomial(1)
        ids = torch.cat((ids, new), dim=1)
    return ids


@torch.no_grad()
def check(model: Decoder, ids: Tensor) -> None:
    """不管学到什么，解码器都该有的两个性质。ids：(1, 32)。"""
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
    text = "\n".join(unicodedata.name(chr(code)) for code in codes)  # 或 open(FILE).read()
    characters = sorted(set(text))
    ids = torch.tensor([characters.index(c) for c in text])
    known, held_out = ids.tensor_split([len(ids) * 9 // 10])
    held_out = held_out.unfold(0, 65, 64)[:100]  # 每行的最后一个词元，也是下一行的第一个
    model = Decoder(len(characters)).double()  # 双精度：换台机器也得到同样的数
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
