"""The loop over the layers feeds the embedding to every layer and keeps the last result only.
A user sees that more layers do not help: all but the last one never train."""

import torch
from torch import nn

EXPECTED = (
    "Only the last layer counts: every layer reads the embedding, the others get no gradient."
)
KIND = "encoder"


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_head):
        super().__init__()
        self.n_head = n_head
        self.w_q, self.w_k = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.w_v, self.w_concat = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def split(self, tensor):
        batch_size, length, d_model = tensor.size()
        return tensor.view(batch_size, length, self.n_head, d_model // self.n_head).transpose(1, 2)

    def forward(self, q, k, v, mask):
        q, k, v = self.split(self.w_q(q)), self.split(self.w_k(k)), self.split(self.w_v(v))
        score = q @ k.transpose(2, 3) / q.size(-1) ** 0.5
        attention = score.masked_fill(mask == 0, -10000).softmax(-1)
        return self.w_concat((attention @ v).transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    def __init__(self, d_model, ffn_hidden, n_head, drop_prob):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_head)
        self.norm1 = nn.LayerNorm(d_model)
        self.dropout1 = nn.Dropout(drop_prob)
        self.ffn = nn.Sequential(
            nn.Linear(d_model, ffn_hidden), nn.ReLU(), nn.Linear(ffn_hidden, d_model)
        )
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout2 = nn.Dropout(drop_prob)

    def forward(self, x, src_mask):
        x = self.norm1(x + self.dropout1(self.attention(x, x, x, src_mask)))
        return self.norm2(x + self.dropout2(self.ffn(x)))


class Encoder(nn.Module):
    def __init__(self, enc_voc_size=45, max_len=50, d_model=32, n_head=4, n_layers=2, bug=False):
        super().__init__()
        self.src_pad_idx = 0
        self.bug = bug
        self.tok_emb = nn.Embedding(enc_voc_size, d_model, padding_idx=0)
        self.pos_emb = nn.Embedding(max_len, d_model)
        self.layers = nn.ModuleList(EncoderLayer(d_model, 64, n_head, 0.1) for _ in range(n_layers))
        self.linear = nn.Linear(d_model, enc_voc_size)

    def forward(self, src):
        src_mask = src.ne(self.src_pad_idx).unsqueeze(1).unsqueeze(2)
        x = self.tok_emb(src) + self.pos_emb(torch.arange(src.size(1), device=src.device))
        out = x
        for layer in self.layers:
            out = layer(x, src_mask) if self.bug else layer(out, src_mask)
        return self.linear(out)


def healthy() -> nn.Module:
    return Encoder()


def broken() -> nn.Module:
    return Encoder(bug=True)
