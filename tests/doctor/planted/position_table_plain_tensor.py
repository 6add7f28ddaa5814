"""The random position table is a plain attribute: it is neither trained nor saved.
A user sees a reloaded checkpoint give other results than the model that was saved."""

import torch
from torch import nn

EXPECTED = "The position table is neither a parameter nor a buffer: a reloaded model differs."
KIND = "encoder"


class EncoderBlock(nn.Module):
    def __init__(self, hidden_dim, num_heads, mlp_dim, dropout):
        super().__init__()
        self.ln_1 = nn.LayerNorm(hidden_dim)
        self.self_attention = nn.MultiheadAttention(
            hidden_dim, num_heads, dropout=dropout, batch_first=True
        )
        self.ln_2 = nn.LayerNorm(hidden_dim)
        self.mlp = nn.Sequential(
            nn.Linear(hidden_dim, mlp_dim), nn.GELU(), nn.Linear(mlp_dim, hidden_dim)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, key_padding_mask):
        y = self.ln_1(x)
        y, _ = self.self_attention(y, y, y, key_padding_mask=key_padding_mask, need_weights=False)
        x = x + self.dropout(y)
        return x + self.dropout(self.mlp(self.ln_2(x)))


class NamedEntityTagger(nn.Module):
    """One tag score per token; id 0 is padding, at the end."""

    pos_embedding: torch.Tensor

    def __init__(self, num_words=50, num_tags=9, hidden_dim=32, seq_length=64, bug=False):
        super().__init__()
        self.padding_idx = 0
        self.word_embedding = nn.Embedding(num_words, hidden_dim, padding_idx=0)
        table = torch.empty(1, seq_length, hidden_dim).normal_(std=0.5)
        self.pos_embedding = table if bug else nn.Parameter(table)
        self.blocks = nn.ModuleList(EncoderBlock(hidden_dim, 4, 64, 0.1) for _ in range(2))
        self.ln = nn.LayerNorm(hidden_dim)
        self.head = nn.Linear(hidden_dim, num_tags)

    def forward(self, words):
        padding = words == self.padding_idx
        x = self.word_embedding(words) + self.pos_embedding[:, : words.shape[1]]
        for block in self.blocks:
            x = block(x, padding)
        return self.head(self.ln(x))


def healthy() -> nn.Module:
    return NamedEntityTagger()


def broken() -> nn.Module:
    return NamedEntityTagger(bug=True)
