"""Every call appends its attention weights, graph and all, to a list that is never emptied.
A user sees memory grow until training dies, and plots that show an old batch (index 0)."""

import torch
from torch import nn

EXPECTED = "The model keeps the attention weights of every call: memory grows without limit."
KIND = "encoder"


class ScaledDotProductAttention(nn.Module):
    def __init__(self, temperature, attn_dropout=0.1):
        super().__init__()
        self.temperature = temperature
        self.dropout = nn.Dropout(attn_dropout)

    def forward(self, q, k, v, mask):
        attn = torch.matmul(q / self.temperature, k.transpose(2, 3))
        attn = torch.softmax(attn.masked_fill(mask == 0, -1e9), dim=-1)
        return torch.matmul(self.dropout(attn), v), attn


class EncoderLayer(nn.Module):
    def __init__(self, d_model, d_inner, n_head, dropout=0.1):
        super().__init__()
        self.n_head = n_head
        self.w_qs = nn.Linear(d_model, d_model, bias=False)
        self.w_ks = nn.Linear(d_model, d_model, bias=False)
        self.w_vs = nn.Linear(d_model, d_model, bias=False)
        self.fc = nn.Linear(d_model, d_model, bias=False)
        self.attention = ScaledDotProductAttention((d_model // n_head) ** 0.5)
        self.layer_norm1 = nn.LayerNorm(d_model, eps=1e-6)
        self.w_1, self.w_2 = nn.Linear(d_model, d_inner), nn.Linear(d_inner, d_model)
        self.layer_norm2 = nn.LayerNorm(d_model, eps=1e-6)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, slf_attn_mask):
        b, n, d = x.shape
        q = self.w_qs(x).view(b, n, self.n_head, -1).transpose(1, 2)
        k = self.w_ks(x).view(b, n, self.n_head, -1).transpose(1, 2)
        v = self.w_vs(x).view(b, n, self.n_head, -1).transpose(1, 2)
        y, attn = self.attention(q, k, v, slf_attn_mask)
        x = self.layer_norm1(x + self.dropout(self.fc(y.transpose(1, 2).reshape(b, n, d))))
        return self.layer_norm2(x + self.dropout(self.w_2(torch.relu(self.w_1(x))))), attn


class InspectableEncoder(nn.Module):
    """Keeps the attention weights of the last call, one (batch, head, query, key) per layer."""

    def __init__(self, n_vocab=40, d_model=32, d_inner=64, n_layers=2, n_head=4, bug=False):
        super().__init__()
        self.pad_idx = 0
        self.bug = bug
        self.attn_maps: list[torch.Tensor] = []
        self.word_emb = nn.Embedding(n_vocab, d_model, padding_idx=0)
        self.pos_emb = nn.Embedding(64, d_model)
        self.layer_stack = nn.ModuleList(
            EncoderLayer(d_model, d_inner, n_head) for _ in range(n_layers)
        )
        self.prj = nn.Linear(d_model, n_vocab)

    def forward(self, seq):
        mask = (seq != self.pad_idx)[:, None, None, :]
        x = self.word_emb(seq) + self.pos_emb(torch.arange(seq.size(1), device=seq.device))
        if not self.bug:
            self.attn_maps = []
        for layer in self.layer_stack:
            x, attn = layer(x, mask)
            self.attn_maps.append(attn if self.bug else attn.detach())
        return self.prj(x)


def healthy() -> nn.Module:
    return InspectableEncoder()


def broken() -> nn.Module:
    return InspectableEncoder(bug=True)
