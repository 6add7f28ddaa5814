"""The top-k threshold of the first row is used for every row of the batch.
A user sees sampled texts get wilder or duller when prompts are batched; a single prompt is fine."""

import torch
import torch.nn as nn
from torch.nn import functional as F

EXPECTED = (
    "Top-k sampling cuts every row at the threshold of row 0: more or fewer than k tokens stay."
)
KIND = "decoder"


class NewGELU(nn.Module):
    def forward(self, x):
        return F.gelu(x, approximate="tanh")


class CausalSelfAttention(nn.Module):
    bias: torch.Tensor

    def __init__(self, n_embd, n_head, block_size):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        bias = torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size)
        self.register_buffer("bias", bias)
        self.n_head = n_head

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.c_attn(x).split(c, dim=2)
        k = k.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
        q = q.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
        v = v.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) / k.size(-1) ** 0.5
        att = att.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))


class Block(nn.Module):
    def __init__(self, n_embd, n_head, block_size):
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd)
        self.attn = CausalSelfAttention(n_embd, n_head, block_size)
        self.ln_2 = nn.LayerNorm(n_embd)
        self.mlp = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd), NewGELU(), nn.Linear(4 * n_embd, n_embd)
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class MinGPT(nn.Module):
    def __init__(self, vocab_size=50, n_embd=48, n_layer=2, n_head=6, block_size=32):
        super().__init__()
        self.block_size = block_size
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList([Block(n_embd, n_head, block_size) for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)

    def forward(self, idx):
        pos = torch.arange(idx.size(1), device=idx.device).unsqueeze(0)
        x = self.wte(idx) + self.wpe(pos)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))

    def threshold(self, logits, top_k):
        v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
        return v[:, [-1]]

    @torch.no_grad()
    def generate(self, idx, max_new_tokens, temperature=1.0, do_sample=False, top_k=None):
        for _ in range(max_new_tokens):
            logits = self(idx[:, -self.block_size :])[:, -1, :]
            if do_sample and temperature > 0:
                logits = logits / temperature
                if top_k:
                    logits = logits.masked_fill(logits < self.threshold(logits, top_k), -1e10)
                idx_next = torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)
            else:
                idx_next = logits.argmax(dim=-1, keepdim=True)
            idx = torch.cat((idx, idx_next), dim=1)
        return idx


class BrokenMinGPT(MinGPT):
    def threshold(self, logits, top_k):
        v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
        return v[0, -1]


def healthy() -> nn.Module:
    return MinGPT()


def broken() -> nn.Module:
    return BrokenMinGPT()
