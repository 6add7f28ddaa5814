"""`translate` switches the model to eval mode and never switches it back.
A user sees overfitting from the first sample printed in training: dropout stays off."""

import math

import torch
from torch import nn

EXPECTED = "translate leaves the model in eval mode: training goes on without dropout."
KIND = "encoder-decoder"


class PositionalEncoder(nn.Module):
    pe: torch.Tensor

    def __init__(self, d_model, dropout, max_seq_len=80):
        super().__init__()
        self.d_model = d_model
        self.dropout = nn.Dropout(dropout)
        angle = torch.arange(max_seq_len)[:, None] / 10000 ** (
            torch.arange(0, d_model, 2) / d_model
        )
        pe = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)
        self.register_buffer("pe", pe.unsqueeze(0))

    def forward(self, x):
        return self.dropout(x * math.sqrt(self.d_model) + self.pe[:, : x.size(1)])


class MultiHeadAttention(nn.Module):
    def __init__(self, heads, d_model, dropout):
        super().__init__()
        self.d_k, self.h = d_model // heads, heads
        self.q_linear, self.k_linear = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.v_linear, self.out = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, q, k, v, mask):
        bs = q.size(0)
        k = self.k_linear(k).view(bs, -1, self.h, self.d_k).transpose(1, 2)
        q = self.q_linear(q).view(bs, -1, self.h, self.d_k).transpose(1, 2)
        v = self.v_linear(v).view(bs, -1, self.h, self.d_k).transpose(1, 2)
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.d_k)
        scores = scores.masked_fill(mask.unsqueeze(1) == 0, -1e9).softmax(dim=-1)
        return self.out(torch.matmul(self.dropout(scores), v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, d_model, heads, dropout, cross=False):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3 if cross else 2))
        self.attn_1 = MultiHeadAttention(heads, d_model, dropout)
        self.attn_2 = MultiHeadAttention(heads, d_model, dropout) if cross else None
        self.ff = nn.Sequential(nn.Linear(d_model, 64), nn.ReLU(), nn.Linear(64, d_model))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask, e_outputs=None, src_mask=None):
        x2 = self.norms[0](x)
        x = x + self.dropout(self.attn_1(x2, x2, x2, mask))
        if self.attn_2 is not None:
            x = x + self.dropout(self.attn_2(self.norms[1](x), e_outputs, e_outputs, src_mask))
        return x + self.dropout(self.ff(self.norms[-1](x)))


class Transformer(nn.Module):
    def __init__(self, src_vocab=33, trg_vocab=37, d_model=32, heads=4, dropout=0.1, bug=False):
        super().__init__()
        self.pad, self.sos, self.eos, self.bug = 0, 1, 2, bug
        self.src_embed = nn.Embedding(src_vocab, d_model)
        self.trg_embed = nn.Embedding(trg_vocab, d_model)
        nn.init.normal_(self.src_embed.weight, std=d_model**-0.5)
        nn.init.normal_(self.trg_embed.weight, std=d_model**-0.5)
        self.pe = PositionalEncoder(d_model, dropout)
        self.encoder = nn.ModuleList(Layer(d_model, heads, dropout) for _ in range(2))
        self.decoder = nn.ModuleList(Layer(d_model, heads, dropout, True) for _ in range(2))
        self.norm_e, self.norm_d = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.out = nn.Linear(d_model, trg_vocab)

    def forward(self, src, trg):
        src_mask = (src != self.pad).unsqueeze(1)
        n = trg.size(1)
        trg_mask = torch.ones(1, n, n, device=trg.device).tril().bool()
        e_outputs, x = self.pe(self.src_embed(src)), self.pe(self.trg_embed(trg))
        for layer in self.encoder:
            e_outputs = layer(e_outputs, src_mask)
        e_outputs = self.norm_e(e_outputs)
        for layer in self.decoder:
            x = layer(x, trg_mask, e_outputs, src_mask)
        return self.out(self.norm_d(x))

    @torch.no_grad()
    def translate(self, src, max_len=12):
        """Greedy, from the start token; rows that have ended are padded."""
        was_training = self.training
        self.eval()
        out = torch.full((len(src), 1), self.sos, device=src.device)
        done = torch.zeros(len(src), dtype=torch.bool, device=src.device)
        for _ in range(max_len):
            token = self(src, out)[:, -1].argmax(-1).masked_fill(done, self.pad)
            out = torch.cat([out, token[:, None]], dim=1)
            done = done | (token == self.eos)
            if done.all():
                break
        if not self.bug:
            self.train(was_training)
        return out


def healthy() -> nn.Module:
    return Transformer()


def broken() -> nn.Module:
    return Transformer(bug=True)
