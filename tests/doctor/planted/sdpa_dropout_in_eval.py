"""`scaled_dot_product_attention` gets its dropout in eval mode too (the function knows no mode).
A user sees test scores that differ from run to run, and are a little too low."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECTED = "Attention dropout stays on in eval mode: two forward passes give different outputs."
KIND = "encoder"


class FlashAttention(nn.Module):
    def __init__(self, dim, num_heads, attn_drop, bug):
        super().__init__()
        self.num_heads = num_heads
        self.attn_drop = attn_drop
        self.bug = bug
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, mask):
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.num_heads, c // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        drop = self.attn_drop if self.training or self.bug else 0.0
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=drop)
        return self.proj(x.transpose(1, 2).reshape(b, n, c))


class Mlp(nn.Module):
    def __init__(self, dim, drop):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.act, self.drop = nn.GELU(), nn.Dropout(drop)

    def forward(self, x):
        return self.drop(self.fc2(self.drop(self.act(self.fc1(x)))))


class Block(nn.Module):
    def __init__(self, dim, num_heads, drop, bug):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = FlashAttention(dim, num_heads, drop, bug)
        self.mlp = Mlp(dim, drop)

    def forward(self, x, mask):
        x = x + self.attn(self.norm1(x), mask)
        return x + self.mlp(self.norm2(x))


class ClsEncoder(nn.Module):
    """A learnt [CLS] vector is put before the tokens; its output is classified."""

    def __init__(self, vocab_size=32, dim=32, depth=2, num_heads=4, n_classes=5, bug=False):
        super().__init__()
        self.pad_id = 0
        self.tok = nn.Embedding(vocab_size, dim)
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
        self.pos_embed = nn.Parameter(torch.randn(1, 65, dim) * 0.02)
        self.blocks = nn.ModuleList(Block(dim, num_heads, 0.1, bug) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, n_classes)

    def forward(self, ids):
        real = F.pad(ids != self.pad_id, (1, 0), value=True)
        x = torch.cat([self.cls_token.expand(ids.shape[0], -1, -1), self.tok(ids)], dim=1)
        x = x + self.pos_embed[:, : x.shape[1]]
        for block in self.blocks:
            x = block(x, real[:, None, None, :])
        return self.head(self.norm(x)[:, 0])


def healthy() -> nn.Module:
    return ClsEncoder()


def broken() -> nn.Module:
    return ClsEncoder(bug=True)
