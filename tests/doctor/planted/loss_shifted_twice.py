"""The wrapper cuts inputs and targets one apart, and then the loss shifts once more.
A user sees a loss that falls slowly and text in which every second word is missing."""

import torch
import torch.nn.functional as F
from torch import einsum, nn

EXPECTED = (
    "The loss is shifted twice: each position is trained to predict the token after the next."
)
KIND = "decoder"


class PreNormAttention(nn.Module):
    def __init__(self, dim, heads=4, dim_head=8):
        super().__init__()
        inner = heads * dim_head
        self.heads = heads
        self.scale = dim_head**-0.5
        self.norm = nn.LayerNorm(dim)
        self.to_qkv = nn.Linear(dim, inner * 3, bias=False)
        self.to_out = nn.Linear(inner, dim)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (
            y.reshape(b, n, self.heads, -1).transpose(1, 2)
            for y in self.to_qkv(self.norm(x)).chunk(3, dim=-1)
        )
        sim = einsum("b h i d, b h j d -> b h i j", q, k) * self.scale
        causal_mask = torch.ones((n, n), device=x.device, dtype=torch.bool).triu(1)
        sim = sim.masked_fill(causal_mask, -torch.finfo(sim.dtype).max)
        out = einsum("b h i j, b h j d -> b h i d", sim.softmax(dim=-1), v)
        return self.to_out(out.transpose(1, 2).reshape(b, n, -1))


def feed_forward(dim, mult=4):
    return nn.Sequential(
        nn.LayerNorm(dim), nn.Linear(dim, dim * mult), nn.GELU(), nn.Linear(dim * mult, dim)
    )


class TransformerNet(nn.Module):
    def __init__(self, num_tokens, dim, depth, max_seq_len):
        super().__init__()
        self.max_seq_len = max_seq_len
        self.token_emb = nn.Embedding(num_tokens, dim)
        self.pos_emb = nn.Embedding(max_seq_len, dim)
        self.attns = nn.ModuleList(PreNormAttention(dim) for _ in range(depth))
        self.ffs = nn.ModuleList(feed_forward(dim) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.to_logits = nn.Linear(dim, num_tokens, bias=False)

    def forward(self, x):
        x = self.token_emb(x) + self.pos_emb(torch.arange(x.shape[1], device=x.device))
        for attn, ff in zip(self.attns, self.ffs):
            x = attn(x) + x
            x = ff(x) + x
        return self.to_logits(self.norm(x))


class AutoregressiveWrapper(nn.Module):
    def __init__(self, net, bug=False):
        super().__init__()
        self.net = net
        self.max_seq_len = net.max_seq_len
        self.bug = bug

    @torch.no_grad()
    def generate(self, prompt, seq_len):
        """Greedy; looks at the last `max_seq_len` tokens."""
        out = prompt
        for _ in range(seq_len):
            logits = self.net(out[:, -self.max_seq_len :])[:, -1]
            out = torch.cat((out, logits.argmax(dim=-1, keepdim=True)), dim=-1)
        return out[:, prompt.shape[1] :]

    def forward(self, x, return_loss=True):
        """The loss of predicting each token of `x` from those before it, or the logits of `x`."""
        if not return_loss:
            return self.net(x)
        inp, target = x[:, :-1], x[:, 1:]
        logits = self.net(inp)
        if self.bug:
            logits, target = logits[:, :-1], target[:, 1:]
        return F.cross_entropy(logits.transpose(1, 2), target)


def healthy() -> nn.Module:
    return AutoregressiveWrapper(TransformerNet(num_tokens=50, dim=32, depth=2, max_seq_len=32))


def broken() -> nn.Module:
    net = TransformerNet(num_tokens=50, dim=32, depth=2, max_seq_len=32)
    return AutoregressiveWrapper(net, bug=True)
