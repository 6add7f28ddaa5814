"""The target mask of the first batch, its padding included, is kept and reused for the same size.
A user sees the first batch right and later batches wrong, depending on the order of the data."""

import math

import torch
from torch import nn

EXPECTED = (
    "A mask kept from an earlier call is reused: the output depends on the batch seen before."
)
KIND = "encoder-decoder"


class MultiHeadAttention(nn.Module):
    def __init__(self, hid_dim, n_heads):
        super().__init__()
        self.n_heads, self.head_dim = n_heads, hid_dim // n_heads
        self.fc_q = nn.Linear(hid_dim, hid_dim)
        self.fc_k = nn.Linear(hid_dim, hid_dim)
        self.fc_v = nn.Linear(hid_dim, hid_dim)
        self.fc_o = nn.Linear(hid_dim, hid_dim)

    def forward(self, query, key, value, mask):
        n = query.shape[0]
        q = self.fc_q(query).view(n, -1, self.n_heads, self.head_dim).permute(0, 2, 1, 3)
        k = self.fc_k(key).view(n, -1, self.n_heads, self.head_dim).permute(0, 2, 1, 3)
        v = self.fc_v(value).view(n, -1, self.n_heads, self.head_dim).permute(0, 2, 1, 3)
        energy = torch.matmul(q, k.permute(0, 1, 3, 2)) / math.sqrt(self.head_dim)
        attention = torch.softmax(energy.masked_fill(mask == 0, -1e10), dim=-1)
        x = torch.matmul(attention, v).permute(0, 2, 1, 3).contiguous()
        return self.fc_o(x.view(n, -1, self.n_heads * self.head_dim))


class Layer(nn.Module):
    def __init__(self, hid_dim, n_heads, pf_dim, cross):
        super().__init__()
        self.self_attention = MultiHeadAttention(hid_dim, n_heads)
        self.self_attn_norm = nn.LayerNorm(hid_dim)
        self.encoder_attention = MultiHeadAttention(hid_dim, n_heads) if cross else None
        self.enc_attn_norm = nn.LayerNorm(hid_dim) if cross else None
        self.ff = nn.Sequential(nn.Linear(hid_dim, pf_dim), nn.ReLU(), nn.Linear(pf_dim, hid_dim))
        self.ff_norm = nn.LayerNorm(hid_dim)

    def forward(self, x, mask, enc_src=None, src_mask=None):
        x = self.self_attn_norm(x + self.self_attention(x, x, x, mask))
        if self.encoder_attention is not None and self.enc_attn_norm is not None:
            x = self.enc_attn_norm(x + self.encoder_attention(x, enc_src, enc_src, src_mask))
        return self.ff_norm(x + self.ff(x))


class Seq2Seq(nn.Module):
    def __init__(self, input_dim=32, output_dim=36, hid_dim=32, n_layers=2, n_heads=4, bug=False):
        super().__init__()
        self.src_pad_idx = self.trg_pad_idx = 1
        self.bug = bug
        self.trg_mask: torch.Tensor | None = None
        self.src_tok, self.src_pos = nn.Embedding(input_dim, hid_dim), nn.Embedding(100, hid_dim)
        self.trg_tok, self.trg_pos = nn.Embedding(output_dim, hid_dim), nn.Embedding(100, hid_dim)
        self.encoder = nn.ModuleList(Layer(hid_dim, n_heads, 64, False) for _ in range(n_layers))
        self.decoder = nn.ModuleList(Layer(hid_dim, n_heads, 64, True) for _ in range(n_layers))
        self.fc_out = nn.Linear(hid_dim, output_dim)

    def make_src_mask(self, src):
        return (src != self.src_pad_idx).unsqueeze(1).unsqueeze(2)

    def make_trg_mask(self, trg):
        n, trg_len = trg.shape
        kept = self.trg_mask
        if self.bug and kept is not None and kept.shape[0] == n and kept.shape[-1] == trg_len:
            return kept
        pad_mask = (trg != self.trg_pad_idx).unsqueeze(1).unsqueeze(2)
        sub_mask = torch.tril(torch.ones((trg_len, trg_len), device=trg.device)).bool()
        if self.bug:
            self.trg_mask = pad_mask & sub_mask
        return pad_mask & sub_mask

    def forward(self, src, trg):
        src_mask, trg_mask = self.make_src_mask(src), self.make_trg_mask(trg)
        enc_src = self.src_tok(src) + self.src_pos(torch.arange(src.shape[1], device=src.device))
        for layer in self.encoder:
            enc_src = layer(enc_src, src_mask)
        x = self.trg_tok(trg) + self.trg_pos(torch.arange(trg.shape[1], device=trg.device))
        for layer in self.decoder:
            x = layer(x, trg_mask, enc_src, src_mask)
        return self.fc_out(x)


def healthy() -> nn.Module:
    return Seq2Seq()


def broken() -> nn.Module:
    return Seq2Seq(bug=True)
