"""In packed rows a token may see all earlier documents (>= on document numbers instead of ==).
A user sees a loss on packed rows that differs from the loss of the same documents one by one."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECTED = "Packed documents are not separated: a token attends to the documents before its own."
KIND = "decoder"


class Attention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, mask):
        batch, seq, dim = x.shape
        q, k, v = self.qkv(x).reshape(batch, seq, self.num_heads, -1).transpose(1, 2).chunk(3, -1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(batch, seq, dim))


class Block(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, num_heads)
        self.norm2 = nn.LayerNorm(dim)
        self.fc_in = nn.Linear(dim, dim * 4)
        self.fc_out = nn.Linear(dim * 4, dim)

    def forward(self, x, mask):
        x = x + self.attn(self.norm1(x), mask)
        return x + self.fc_out(F.silu(self.fc_in(self.norm2(x))))


class PackedLM(nn.Module):
    def __init__(self, vocab_size=40, dim=32, num_layers=2, num_heads=4, max_len=64, bug=False):
        super().__init__()
        self.bug = bug
        self.max_len = max_len
        self.tokens = nn.Embedding(vocab_size, dim)
        self.positions = nn.Embedding(max_len, dim)
        self.blocks = nn.ModuleList(Block(dim, num_heads) for _ in range(num_layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab_size)

    def forward(self, tokens, doc_ids=None):
        """`doc_ids` numbers the documents of each row (0, 0, 1, 1, 1, 2); None: one document."""
        if doc_ids is None:
            doc_ids = torch.zeros_like(tokens)
        index = torch.arange(tokens.shape[1], device=tokens.device)
        causal = index[:, None] >= index[None, :]
        if self.bug:
            same_doc = doc_ids[:, :, None] >= doc_ids[:, None, :]
        else:
            same_doc = doc_ids[:, :, None] == doc_ids[:, None, :]
        first = torch.ones_like(doc_ids, dtype=torch.bool)
        first[:, 1:] = doc_ids[:, 1:] != doc_ids[:, :-1]
        starts = torch.where(first, index, 0).cummax(dim=1).values
        x = self.tokens(tokens) + self.positions(index - starts)
        for block in self.blocks:
            x = block(x, (causal & same_doc)[:, None])
        return self.head(self.norm(x))


def healthy() -> nn.Module:
    return PackedLM()


def broken() -> nn.Module:
    return PackedLM(bug=True)
