"""The model is (length, batch), but the position table is added along the batch.
A user sees word order ignored, and other translations for a sentence in another row."""

import math

import torch
import torch.nn.functional as F
from torch import nn

EXPECTED = (
    "Positions are added along the batch: the output depends on the row, not on the token order."
)
KIND = "encoder-decoder"


class PositionalEncoding(nn.Module):
    pe: torch.Tensor

    def __init__(self, d_model, max_len=128, bug=False):
        super().__init__()
        self.bug = bug
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, d_model)
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe.unsqueeze(0) if bug else pe.unsqueeze(1))

    def forward(self, x):
        if self.bug:
            return x + self.pe[:, : x.size(1)]
        return x + self.pe[: x.size(0)]


class EncoderLayer(nn.Module):
    def __init__(self, d_model, nhead):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, nhead)
        self.linear1, self.linear2 = nn.Linear(d_model, 64), nn.Linear(64, d_model)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, src, key_padding_mask):
        y = self.norm1(src)
        y, _ = self.self_attn(y, y, y, key_padding_mask=key_padding_mask, need_weights=False)
        src = src + y
        return src + self.linear2(F.relu(self.linear1(self.norm2(src))))


class DecoderLayer(nn.Module):
    def __init__(self, d_model, nhead):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, nhead)
        self.cross_attn = nn.MultiheadAttention(d_model, nhead)
        self.linear1, self.linear2 = nn.Linear(d_model, 64), nn.Linear(64, d_model)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.norm3 = nn.LayerNorm(d_model)

    def forward(self, tgt, memory, tgt_mask, memory_padding):
        y = self.norm1(tgt)
        tgt = tgt + self.self_attn(y, y, y, attn_mask=tgt_mask, need_weights=False)[0]
        y, _ = self.cross_attn(
            self.norm2(tgt), memory, memory, key_padding_mask=memory_padding, need_weights=False
        )
        tgt = tgt + y
        return tgt + self.linear2(F.relu(self.linear1(self.norm3(tgt))))


class TransformerModel(nn.Module):
    """All sequences are (length, batch) and padded at the end."""

    def __init__(self, ntoken=40, d_model=32, nhead=4, nlayers=2, pad_id=0, bug=False):
        super().__init__()
        self.d_model, self.pad_id = d_model, pad_id
        self.embedding = nn.Embedding(ntoken, d_model)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        self.pos_encoder = PositionalEncoding(d_model, bug=bug)
        self.enc = nn.ModuleList(EncoderLayer(d_model, nhead) for _ in range(nlayers))
        self.dec = nn.ModuleList(DecoderLayer(d_model, nhead) for _ in range(nlayers))
        self.enc_norm, self.dec_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.linear = nn.Linear(d_model, ntoken)

    def forward(self, src, tgt):
        padding = (src == self.pad_id).t()
        memory = self.pos_encoder(self.embedding(src) * math.sqrt(self.d_model))
        for layer in self.enc:
            memory = layer(memory, padding)
        memory = self.enc_norm(memory)
        n = tgt.size(0)
        tgt_mask = torch.full((n, n), float("-inf"), device=tgt.device).triu(1)
        x = self.pos_encoder(self.embedding(tgt) * math.sqrt(self.d_model))
        for layer in self.dec:
            x = layer(x, memory, tgt_mask, padding)
        return self.linear(self.dec_norm(x))


def healthy() -> nn.Module:
    return TransformerModel()


def broken() -> nn.Module:
    return TransformerModel(bug=True)
